"""Session of the gateway's program: one task at a time, one set of parameters.

Requests are handled one after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.data.catalogue import Unreadable, read_task
from runtime.errors import RegattaError, UsageError
from runtime.master.messages import Unread
from runtime.parameters import initializers, optimisers
from runtime.trainer.job import Job
from runtime.trainer.params import Params
from runtime.trainer.tables import SharedTable
from runtime.trainer.task_loop import EXTEND_SECONDS
from runtime.trainer.tasks.task_client import JobDone, PassEnd, Task, TaskSource

Array = NDArray[Any]
DTYPES: Mapping[str, str] = {"f4": "<f4", "f8": "<f8"}


class Over(RegattaError):
    """There is no more work in this job."""


class Stale(RegattaError):
    """The named task is not, or no longer, assigned to this program."""


class Desk:
    """A program's tasks and parameters in its job.

    ``leaving`` is the reason for which this process should end; empty while it should not.
    """

    def __init__(self, job: Job, source: TaskSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._params: Params | None = None
        self._pushed: dict[str, Array] = {}
        self._task: Task | None = None
        self._extended = clock()
        self._pass: int | None = None

    # --- Tasks -------------------------------------------------------------------------------------------------------
    def next_task(self) -> Task | None:
        """Return the assigned task, or request one. None: none is available now. Raises Over."""
        with self._lock:
            while self._task is None:
                answer = self._source.next_task()
                if isinstance(answer, Task):
                    self._task, self._extended = answer, self._clock()
                    self._begin_pass(answer.pass_id)
                elif isinstance(answer, PassEnd):
                    self._end_pass(answer.pass_id)
                elif isinstance(answer, JobDone):
                    raise Over("All passes over the data are done; save the model and end with exit code 0.")
                else:
                    self._end_pass(self._pass)
                    return None
            return self._task

    def records(self, number: int) -> list[Any]:
        """Return all records of the assigned task.

        Raises Stale, also if they cannot be read, which is reported to the master.
        """
        with self._lock:
            task = self._assigned(number, None)
            try:
                return list(read_task(task))
            except Unreadable as error:
                self._task = None
                self._source.cannot_read(task, str(error), Unread.FAIL_JOB)
                raise Stale(f"Task {number} is given back, for {error} Ask for the next.") from None

    def report_task(self, number: int, how: str, body: Mapping[str, Any]) -> None:
        """Report ``done``, ``fail`` or ``release`` for the assigned task. Raises Stale if the report does not count."""
        with self._lock:
            if metrics := body.get("metrics"):
                self._job.report(**metrics)
            task = self._assigned(number, body.get("epoch"))
            self._task = None
            reports: Mapping[str, Callable[[], bool]] = {
                "done": lambda: self._source.done(task),
                "fail": lambda: self._source.fail(task, str(body.get("why") or "the program said that it failed")),
                "release": lambda: self._source.release(task),
            }
            if not reports[how]():
                raise Stale(f"The report of task {number} came too late: another trainer has it now. Ask for the next.")

    def _assigned(self, number: int, epoch: object) -> Task:
        task = self._task
        if task is None or task.task_id != number or epoch not in (None, task.epoch):
            raise Stale(
                f"Task {number} is not this program's, or not in this epoch; GET /v1/task returns the current one."
            )
        self._keep(task)
        return task

    def _keep(self, task: Task) -> None:
        """Extend the task's deadline at the master now and then, for a task that takes long."""
        if self._clock() - self._extended > EXTEND_SECONDS:
            self._extended = self._clock()
            self._source.extend(task)

    # --- Parameters --------------------------------------------------------------------------------------------------
    def declare(self, body: Mapping[str, Any]) -> int:
        """Share the parameters. Return the version. Raises UsageError."""
        with self._lock:
            try:
                arrays = {str(name): _first_values(spec) for name, spec in body["params"].items()}
                rule = optimisers.from_json(body["opt"]) if "opt" in body else None
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UsageError(f"The parameters cannot be read: {error}. The form is in runtime/gateway.") from None
            self._params = self._job.params(arrays, rule, body.get("mode"), wire=body.get("wire"))
            if self._pass is not None:
                self._params.begin_pass(self._pass)
            return self._params.version

    def values(self, name: str) -> Array:
        """Return a copy of a parameter. Raises UsageError."""
        with self._lock:
            return self._parameter(name).copy()

    def push(self, name: str, gradient: Array) -> None:
        """Store the gradient of one parameter (flat, of any float type) for the step. Raises UsageError."""
        with self._lock:
            self._take(name, gradient)

    def push_pull(self, name: str, gradient: Array, samples: int) -> Array:
        """Do the same, then make the step of ``samples``. Return the new values."""
        with self._lock:
            self._take(name, gradient)
            if self._task is not None:
                self._keep(self._task)
            self._declared().push_pull(self._pushed, n=samples)
            self._pushed = {}
            return self._parameter(name).copy()

    # --- Tables ------------------------------------------------------------------------------------------------------
    def declare_table(self, body: Mapping[str, Any]) -> None:
        """Declare a table of rows. Raises UsageError."""
        with self._lock:
            params = self._declared()
            try:
                rule = optimisers.from_json(body["opt"]) if "opt" in body else None
                first = initializers.from_json(body["init"]) if "init" in body else None
                name, dim, seed = body["name"], body["dim"], body.get("seed")
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"The table cannot be read: {error}. The form is in runtime/gateway.") from None
            params.table(name, dim, first, rule, seed)

    def rows(self, name: str, ids: Array) -> Array:
        """Return the current rows (n, dim) of ``ids``. Raises UsageError."""
        with self._lock:
            return self._table(name).pull(ids)

    def push_rows(self, name: str, ids: Array, gradients: Array) -> None:
        """Store gradients of rows (n, dim) for the step. Raises UsageError."""
        with self._lock:
            self._table(name).push(ids, gradients)

    def dim_of(self, name: str) -> int:
        """Return how many numbers a row has. Raises UsageError."""
        with self._lock:
            return self._table(name).dim

    def _table(self, name: str) -> SharedTable:
        tables = self._declared().tables
        if name not in tables:
            known = f"; there are {', '.join(tables)}" if tables else ""
            raise UsageError(f"There is no table {name!r}{known}. POST its name and dim to /v1/tables first.")
        return tables[name]

    def _take(self, name: str, gradient: Array) -> None:
        parameter = self._parameter(name)
        if gradient.size != parameter.size:
            raise UsageError(f"The gradient of {name!r} has {gradient.size} numbers, the parameter {parameter.size}.")
        self._pushed[name] = gradient.astype(parameter.dtype).reshape(parameter.shape)

    def _parameter(self, name: str) -> Array:
        try:
            return self._declared()[name]
        except KeyError as error:
            raise UsageError(str(error.args[0])) from None

    def _declared(self) -> Params:
        if self._params is None:
            raise UsageError("There are no parameters yet; POST them to /v1/params first.")
        return self._params

    def _begin_pass(self, number: int) -> None:
        self._pass = number
        if self._params is not None:
            self._params.begin_pass(number)

    def _end_pass(self, number: int | None) -> None:
        self._pass = None
        if self._params is not None and number is not None:
            self._params.end_pass(number)

    # --- Reports, and the end ----------------------------------------------------------------------------------------
    def report(self, values: Mapping[str, object]) -> None:
        with self._lock:
            self._job.report(**values)

    def save(self, path: str, content: bytes) -> bool:
        """Save ``content``, or the parameters without it. Return whether this trainer was elected to save."""
        with self._lock:
            return self._job.save_model(path, (lambda target: target.write_bytes(content)) if content else None)

    def close(self, why: str = "", leaving: bool = False) -> None:
        """End the session. The assigned task fails if ``why`` is set; otherwise it is released."""
        with self._lock:
            task, self._task = self._task, None
            if task is not None and why:
                self._source.fail(task, why)
            elif task is not None:
                self._source.release(task)
            if self._params is not None and not leaving:
                self._params.leave()


def _first_values(spec: Mapping[str, Any]) -> Array:
    shape, dtype = tuple(int(size) for size in spec["shape"]), DTYPES[spec.get("dtype", "f4")]
    if "values" not in spec:
        return np.zeros(shape, dtype)
    return np.array(spec["values"], dtype).reshape(shape)
