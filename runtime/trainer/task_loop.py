"""The loop over tasks: it gets them, iterates over their batches, announces passes, and reports tasks as done.

A task is reported done when the next batch is requested after its last one: everything pushed for it has been accepted.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from runtime.master.messages import Unread
from runtime.messages import training as messages
from runtime.trainer.events import Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.params import Params
from runtime.trainer.step_times import Part, StepTimes
from runtime.trainer.tasks.current_task import CurrentTask
from runtime.trainer.tasks.reader import RAISE, SKIP, BadRecord, Reader
from runtime.trainer.tasks.task_client import Answer, JobDone, PassEnd, Task, TaskSource
from runtime.trainer.tasks.task_reading import InvalidRecord, MissingFile, TaskReading
from runtime.trainer.training_progress import TrainingProgress

# The interval at which a long task is extended.
EXTEND_SECONDS = 20.0
# Within this time after the loop was left, an uncaught error has ended the script.
LEAVING_SECONDS = 0.25
# How long a process that ends tries to report on its task. Without a report the master takes the task back.
LAST_CALLS_SECONDS = 5.0


class TaskLoop:
    """One run of ``job.steps``.

    It ends after ``passes`` passes (None: all) if the job has more. Otherwise it ends when the source reports that the
    job is done: only then have the other trainers pushed everything. ``stays``: another loop over the next pass will
    follow, so that other trainers wait for this one.
    """

    def __init__(
        self,
        source: TaskSource,
        reader: Reader,
        passes: int | None,
        total: int,
        *,
        stays: bool,
        seed: int,
        params: Callable[[], Params | None],
        listeners: Listeners,
        reports: Reports,
        pause: Callable[[float], None],
        times: StepTimes | None = None,
    ) -> None:
        self._source = source
        self._on_bad_record = reader.on_bad_record
        self._passes = passes
        self._total = total
        self._stays = stays
        self._pause = pause
        self._times = times or StepTimes()
        self._abandoned = False
        self._finished: Task | None = None  # the task that is done and not reported
        self._progress = TrainingProgress(params, listeners, reports)
        self._reading = TaskReading(reader, seed)
        self.current = CurrentTask(source, self._reading.stop)

    def batches(self) -> Iterator[Any]:
        """Every batch of every task that this trainer is given."""
        left = False
        self._times.begin_loop()
        try:
            while not isinstance(answer := self._next_task(), JobDone):
                if isinstance(answer, Task):
                    yield from self._work(answer)
                elif isinstance(answer, PassEnd):
                    self._progress.end_pass(answer.pass_id)
                    if self._passes is not None and self._passes <= answer.pass_id + 1 < self._total:
                        self._report_early_end(self._passes)
                        return
                else:
                    self._progress.suspend_pass()
                    with self._times.during(Part.WAIT):
                        self._pause(answer.seconds)
            self._stays = False
        except GeneratorExit:
            left = True
            raise
        finally:
            self._times.end_loop()
            self._reading.close()
            if not self._abandoned:
                self._release_soon() if left else self.current.release()
                if not self._stays:
                    self._progress.leave()

    def _next_task(self) -> Answer:
        finished, self._finished = self._finished, None
        with self._times.during(Part.WAIT):
            return self._source.next_task(*([finished] if finished else ()))

    def _work(self, task: Task) -> Iterator[Any]:
        """The batches of a task. What prevents them is reported, and raised if the script requests that."""
        self.current.task = task
        self._progress.begin_pass(task.pass_id)
        try:
            yield from self._train(task)
        except MissingFile as error:
            self.current.cannot_read(str(error), Unread.LEAVE_OUT if self._on_bad_record == SKIP else Unread.FAIL_JOB)
            if self._on_bad_record == RAISE:
                raise
            return
        except InvalidRecord as error:
            self.current.fail(str(error))
            return
        except BadRecord as error:
            self.current.fail(str(error), (error.place, error.place + 1))
            if self._on_bad_record == RAISE and error.__cause__:
                raise error.__cause__ from None
            return
        if self.current.task is not task:  # it was released meanwhile
            return
        self._progress.finish(task)
        self.current.task, self._finished = None, task

    def _train(self, task: Task) -> Iterator[Any]:
        """The batches of a task, each between its two events, while the task is extended at intervals."""
        current, progress, reading, source = self.current, self._progress, self._reading, self._source
        times = self._times
        with reading.batches(task) as batches:
            extended_at = time.monotonic()
            for count, (place, batch) in enumerate(islice(batches, task.skip, None), task.skip + 1):
                current.place = place
                progress.begin_batch(task, count)
                reading.read_next(source)
                times.switch(Part.COMPUTE)
                yield batch
                times.switch(Part.READ)
                times.end_step()
                if time.monotonic() - extended_at > EXTEND_SECONDS:
                    extended_at = time.monotonic()
                    source.extend(task)
                progress.end_batch()

    def _report_early_end(self, passes: int) -> None:
        """Print why not all passes of the job are done."""
        if not self._stays:
            why = messages.PASSES_NOT_ALL_RUN(passes=passes, total=self._total)
            print(why, file=sys.stderr, flush=True)  # noqa: T201  it goes to the job's log

    # --- The end of the process or of the script's loop ---------------------------------------------------------------
    def abandon(self) -> None:
        """Release the task because this process ends, and send no further requests."""
        self._end_soon()
        self.current.release()

    def crash(self, error: BaseException) -> None:
        """Report the place of an error of user code at the current batch, so that others search there."""
        self._end_soon()
        self.current.fail_here(messages.SCRIPT_RAISED(error=f"{type(error).__name__}: {error}"))

    def _end_soon(self) -> None:
        self._abandoned = True
        self._source.end_within(LAST_CALLS_SECONDS)

    def _release_soon(self) -> None:
        """Release the task after user code left the loop in the middle: by ``break``, or by an error for ``crash``."""
        if self.current.task is not None:
            threading.Timer(LEAVING_SECONDS, self.current.release).start()
