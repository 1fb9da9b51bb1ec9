"""The job as user code sees it. ``runtime.dist`` is its entry point."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from runtime import contract
from runtime.contract import Environment
from runtime.data import catalogue
from runtime.data.dataset import DatasetInfo
from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters.optimisers import SGD, Optimiser
from runtime.trainer.argument_checks import Arrays
from runtime.trainer.config import Config
from runtime.trainer.environment import JobContext, end_for_restart, guard
from runtime.trainer.events import Event, Handler, Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.params import RAISE, Params
from runtime.trainer.step_times import StepTimes
from runtime.trainer.step_watch import StepWatch
from runtime.trainer.task_loop import TaskLoop
from runtime.trainer.tasks import loading
from runtime.trainer.tasks.reader import AHEAD, FAIL_TASK, ON_BAD_RECORD, Decode, Reader
from runtime.trainer.tasks.task_client import TaskSource

# The elected trainer has this long to write the model before another may be elected.
SAVE_SECONDS = 60.0
# After an uncaught error, threads of the script have this long to finish.
LINGER_SECONDS = 5

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]
Writer = Callable[[Path], object]


class Job:
    """One training. Made by ``dist.init()``."""

    def __init__(self, environment: Environment, context: JobContext) -> None:
        self._environment = environment
        self._config = Config(environment.parameters)
        self._context = context
        self._listeners = Listeners()
        self._parameters: Params | None = None
        self._source: TaskSource | None = None
        self._loop: TaskLoop | None = None
        self._guard = guard(self._end)
        sys.excepthook = self._crashing(sys.excepthook)
        self._reports = Reports(context.sink, self._version)
        self._watch: StepWatch | None = None
        self._times = StepTimes(None if environment.alone else self._measured)

    @property
    def trainer(self) -> int:
        """This trainer's index, from 0."""
        return self._environment.index

    @property
    def seed(self) -> int:
        """The job's seed, the same in every trainer."""
        return self._environment.seed

    @property
    def config(self) -> Mapping[str, bool | int | float | str]:
        """The parameters of the job's specification by name. A missing one raises UsageError that lists those given."""
        return self._config

    # --- Data --------------------------------------------------------------------------------------------------------
    def reader(
        self,
        name: str | None = None,
        batch: int | None = None,
        shuffle: int = 0,
        decode: Decode | None = None,
        on_bad_record: str = FAIL_TASK,
        ahead: int = AHEAD,
    ) -> Reader:
        """Training records of a dataset by name, as ``team/mine`` or ``team/mine@3`` (default: the job's).

        A script that runs alone may also name files: ``rows.csv``, ``shards/*.tar``, a folder. Raises UsageError for an
        unknown name.

        The type of a record depends on its format; records of shipped datasets are ``(features, label)``. With
        ``batch`` records are returned as arrays of that many of them, fewer at the end of a task: ``(x, y)`` for pairs,
        a dict of columns for rows with names. ``shuffle`` mixes records within a task, in windows of that many, the
        same way on every run with the same seed. ``decode`` is applied to each record first; the conversion without it
        is described in ``runtime/trainer/tasks/collation.py``.

        ``on_bad_record`` selects what happens to a record that cannot be decoded: ``fail-task`` (reported to the
        master, which leaves the record out if it fails on another trainer too), ``skip`` (it is left out) or ``raise``.
        A whole file that is gone or changed since the job began is no bad record: it ends the job once another trainer
        cannot read it either. With ``skip`` its tasks are left out instead.

        With ``batch`` a thread reads and decodes up to ``ahead`` batches of the current task while the script trains on
        another, at most 64 MiB of them or one batch. So ``decode`` runs concurrently with the script: shared state,
        such as NumPy's global random numbers, must allow that. With ``ahead=0`` everything is read by the script's own
        thread, each batch at its request.
        """
        if on_bad_record not in ON_BAD_RECORD:
            raise UsageError(f"on_bad_record is one of {', '.join(ON_BAD_RECORD)}, not {on_bad_record!r}.")
        if batch is not None and batch < 1:
            raise UsageError(messages.BATCH_SIZE_INVALID(count=batch))
        if ahead < 0:
            raise UsageError(messages.READ_AHEAD_INVALID(count=ahead))
        return Reader(self._find(name).name, batch, shuffle, decode, on_bad_record, ahead, self._one_pass)

    def load(self, name: str | None = None, split: str = "test", decode: Decode | None = None) -> Any:
        """Load a whole split into memory, as ``reader`` would return it in one batch.

        For shipped datasets these are features (n, ...) float32 and labels (n,), for rows with names a dict of columns.
        ``decode`` is applied to each record first. Raises UsageError for an unknown name or split, and for one without
        records.
        """
        return loading.load(self._find(name), split, decode)

    def _find(self, name: str | None) -> DatasetInfo:
        wanted = name or self._environment.dataset
        if not wanted:
            known = ", ".join(catalogue.names(self._environment.data_path))
            raise UsageError(messages.DATASET_NOT_SPECIFIED(example=f"{known.split(', ')[0]!r}", names=known))
        find = catalogue.locate if self._environment.alone else catalogue.find
        return find(wanted, self._environment.data_path)

    def steps(self, reader: Reader, passes: int | None = None) -> Iterator[Any]:
        """Batches of ``passes`` passes, from the tasks that the master gives to this trainer.

        In a job its specification sets the number of passes, and ``passes`` can only end earlier; a script that runs
        alone does ``passes``. A task counts as done when the batch after its last one is requested.
        """
        if not isinstance(reader, Reader):
            raise UsageError("job.steps takes a reader, as in job.steps(job.reader(batch=64)).")
        return self._iterate(reader, passes, stays=False)

    def _one_pass(self, reader: Reader) -> Iterator[Any]:
        return self._iterate(reader, 1, stays=True)

    def _iterate(self, reader: Reader, passes: int | None, stays: bool) -> Iterator[Any]:
        total = passes if passes and self._environment.alone else self._environment.passes
        with self._guard():
            loop = self._loop = TaskLoop(
                self._tasks(reader.name, passes),
                reader,
                passes,
                total,
                stays=stays,
                seed=self.seed,
                params=lambda: self._parameters,
                listeners=self._listeners,
                reports=self._reports,
                pause=self._wait_for_task,
                times=self._times,
            )
            self._watch_steps()
            for batch in loop.batches():
                self._pass_gate()
                if why := self._context.why_leave():
                    self._end(why)
                yield batch

    def _pass_gate(self) -> None:
        """Stop before a step while the job is paused."""
        gate = self._context.gate
        if not gate.is_requested:
            gate.note(self._version())
            return
        step = self._parameters.settled_step() if self._parameters is not None else None
        self._stand_at_gate(step)

    def _stand_at_gate(self, step: int | None) -> None:
        with self._times.evaluation():
            self._context.gate.wait(step, self._context.why_leave)

    def _wait_for_task(self, seconds: float) -> None:
        """Wait before the master is asked again. A trainer without a task stops here while the job is paused."""
        self._context.wait(seconds)
        if self._context.gate.is_requested:
            self._stand_at_gate(None)

    def source(self) -> TaskSource:
        """The source of the tasks of the job's dataset, for a loop other than ``steps``. Raises UsageError."""
        name = self._find(None).name
        with self._guard():
            return self._tasks(name, None)

    def why_leave(self) -> str:
        """Why this process should end and be started again; empty if it should not."""
        return self._context.why_leave()

    def _tasks(self, dataset: str, passes: int | None) -> TaskSource:
        """The connection to the master is kept; a script that runs alone has a queue for each loop."""
        if self._source is None or self._environment.alone:
            self._source = self._context.tasks(dataset, passes)
        return self._source

    # --- Parameters --------------------------------------------------------------------------------------------------
    def params(
        self,
        arrays: Arrays,
        opt: Optimiser | None = None,
        mode: str | None = None,
        nonfinite: str = RAISE,
        wire: str | None = None,
        mapped: bool = False,
    ) -> Params:
        """Share a dict of float32 or float64 arrays with all trainers; one of them sends the initial values.

        ``opt`` updates them on the servers (default: ``SGD(0.01)``). ``mode`` is ``sync``, ``async``, ``m_of_n(2)``,
        ``ssp(3)`` or ``outer(100)`` (default: the job's). ``nonfinite`` selects what happens to a gradient with NaN or
        infinity: ``raise`` an error, ``reject`` the step, or ``zero`` these numbers. ``wire`` is the format of float32
        gradients sent to servers on other hosts: ``f32``, or ``bf16`` at half the bytes, where the rounding error of
        one gradient is added to the next. ``mapped`` saves a copy of all parameters in every step with servers of this
        host. The arrays of the returned object are then in the servers' memory and read-only, and the passed arrays
        only set the initial values. Raises UsageError if trainers differ or the arrays cannot be parameters.
        """
        if self._parameters is not None:
            raise UsageError(messages.PARAMETERS_ALREADY_SET())
        if not isinstance(opt, Optimiser | None):
            raise UsageError(f"opt is an optimiser such as dist.SGD(0.1), not {opt!r}.")
        mode, wire = mode or self._environment.mode, wire or self._environment.wire
        if wire not in contract.WIRES:
            raise UsageError(f"wire is one of {', '.join(contract.WIRES)}, not {wire!r}.")
        with self._guard():
            store = self._context.store(wire)
        self._parameters = Params(
            arrays, store, opt or SGD(), mode, nonfinite, self._guard, self.seed, mapped, self._times
        )
        return self._parameters

    def _version(self) -> int | None:
        return None if self._parameters is None else self._parameters.version

    # --- Reports and events -------------------------------------------------------------------------------------------
    def report(self, **values: object) -> None:
        """Put numbers on the job's charts, as in ``job.report(cost=cost)``. Raises UsageError for other values."""
        self._reports.report(values)

    def evaluation(self) -> AbstractContextManager[None]:
        """Announce that no step is expected, as in ``with job.evaluation(): ...``.

        During it the job does not count as stalled, and the time is no part of a step. Between passes and after the
        loop no step is expected anyway.
        """
        return self._times.evaluation()

    def _measured(self, values: Mapping[str, float]) -> None:
        """Report what the runtime measured; the step is that of the values that the script reports."""
        self._context.sink.take(time.time(), self._reports.step(), values)

    def _watch_steps(self) -> None:
        if self._watch is None and not self._environment.alone:
            self._watch = StepWatch(self._times, self._measured)
            self._watch.start()

    def on(self, event: type[Event], handler: Handler) -> None:
        """Call ``handler`` with every event of a kind, as in ``job.on(dist.EndPass, print)``."""
        self._listeners.on(event, handler)

    # --- The model ---------------------------------------------------------------------------------------------------
    def save_model(self, path: str, write: Writer | None = None) -> bool:
        """Save the model among the job's artifacts; True in the one trainer that was elected to do so.

        The parameters are saved as ``.npz``, and of each table its trained rows, as ``<name>.ids`` and ``<name>.rows``.
        For another format ``write`` is called with the path to write to.
        """
        if write is None and self._parameters is None:
            raise UsageError(messages.NO_PARAMETERS_TO_SAVE())
        with self._guard():
            alone = self._environment.alone
            if not alone and not self._tasks(self._environment.dataset, None).save_request(SAVE_SECONDS):
                return False
        if self._parameters is not None:
            self._parameters.pull()
        _write_whole(self._output(path), write or self._write_parameters)
        return True

    def _output(self, path: str) -> Path:
        root = Path(self._environment.output_dir).resolve()
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise UsageError(messages.MODEL_PATH_OUTSIDE_OUTPUT(path=f"{path!r}"))
        return target

    def _write_parameters(self, path: Path) -> None:
        arrays: dict[str, Any] = dict(self._parameters or {})
        for table in self._parameters.tables.values() if self._parameters is not None else ():
            arrays[f"{table.name}.ids"], arrays[f"{table.name}.rows"] = table.all()
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def _crashing(self, hook: ExceptHook) -> ExceptHook:
        """Return an exception hook that reports the failed batch to the master.

        It then calls ``hook``, and limits the time to exit.
        """

        def hook_with_report(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> object:
            if self._loop is not None and not isinstance(error, KeyboardInterrupt):
                self._loop.crash(error)
            if not self._environment.alone:
                _end_soon()
            return hook(kind, error, where)

        return hook_with_report

    # --- The end -----------------------------------------------------------------------------------------------------
    def _end(self, why: str) -> NoReturn:
        """Release the current task and end this process."""
        if self._loop is not None:
            self._loop.abandon()
        end_for_restart(why)


def _end_soon() -> None:
    """Limit the time to exit: threads of the script would keep the process running, and its error unreported.

    It uses a signal, because the error may be a shortage of threads.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(contract.EXIT_ERROR))
    signal.alarm(LINGER_SECONDS)


def _write_whole(target: Path, write: Writer) -> None:
    """Write beside the target and rename, so that the file is always complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
