"""The loop over tasks: it gets them, iterates over their batches, announces passes, and reports tasks as done.

A task is reported done when the next batch is requested after its last one: everything pushed for it has been accepted.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any

from runtime.data.catalogue import Unreadable, read_placed
from runtime.errors import Lost, RegattaError
from runtime.master.messages import Unread
from runtime.messages import training as messages
from runtime.trainer.events import BeginIteration, BeginPass, EndIteration, EndPass, Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.params import Params
from runtime.trainer.tasks.read_ahead import MOST_BYTES, ReadAhead, Readers
from runtime.trainer.tasks.reader import RAISE, SKIP, BadRecord, Placed, Reader, Wanted
from runtime.trainer.tasks.task_client import Answer, JobDone, PassEnd, Place, Task, TaskSource, Wait

# The interval at which a long task is extended.
EXTEND_SECONDS = 20.0
# Within this time after the loop was left, an uncaught error has ended the script.
LEAVING_SECONDS = 0.25
# How long a process that ends tries to report on its task. Without a report the master takes the task back.
LAST_CALLS_SECONDS = 5.0


class _NoFile(RegattaError):
    """A file that the task needs is gone or changed."""


class _BadBytes(RegattaError):
    """The files are unchanged, but a record of the task is invalid."""


def _records(task: Task) -> Iterator[Placed]:
    try:
        yield from read_placed(task)
    except Unreadable as error:
        raise _NoFile(str(error)) from error
    except Lost:
        raise
    except RegattaError as error:
        raise _BadBytes(str(error)) from error


def _count(task: Task) -> int:
    """The number of records of a task."""
    if task.ranges is None:
        return sum(chunk.records for chunk in task.chunks)
    return sum(end - first for first, end in task.ranges)


def _read_of(task: Task) -> tuple[object, ...]:
    """The properties that determine the batches of a task."""
    return task.pass_id, task.task_id, task.chunks, task.ranges


_Reading = ReadAhead[tuple[Place, Any]]


class Loop:
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
    ) -> None:
        self._source = source
        self._reader = reader
        self._passes = passes
        self._total = total
        self._stays = stays
        self._seed = seed
        self._params = params
        self._listeners = listeners
        self._reports = reports
        self._pause = pause
        self._pass: int | None = None  # the pass that was begun and not ended
        self._reported_pass = -1  # the last pass whose beginning was reported
        self._batch = 0
        self._abandoned = False
        self._task_lock = threading.Lock()
        self.task: Task | None = None  # the current task
        self._place: Place | None = None  # where the current batch was read
        self._finished: Task | None = None  # the task that is done and not reported
        self._ahead: _Reading | None = None  # the background reading of the current task
        self._readers = Readers(reader.ahead, MOST_BYTES)
        self._coming: deque[tuple[Task, _Reading]] = deque()  # the reading of the next tasks

    def batches(self) -> Iterator[Any]:
        """Every batch of every task that this trainer is given."""
        left = False
        try:
            while not isinstance(answer := self._ask(), JobDone):
                if isinstance(answer, Task):
                    yield from self._work(answer)
                elif isinstance(answer, PassEnd):
                    self._end(answer.pass_id)
                    if self._passes is not None and self._passes <= answer.pass_id + 1 < self._total:
                        self._report_early_end(self._passes)
                        return
                else:
                    self._wait(answer)
            self._stays = False
        except GeneratorExit:
            left = True
            raise
        finally:
            self._stop_reading()
            if not self._abandoned:
                self._release_soon() if left else self.release()
                self._leave()

    def _report_early_end(self, passes: int) -> None:
        """Print why not all passes of the job are done."""
        if not self._stays:
            why = messages.PASSES_NOT_ALL_RUN(passes=passes, total=self._total)
            print(why, file=sys.stderr, flush=True)  # noqa: T201  it goes to the job's log

    def abandon(self) -> None:
        """Release the task because this process ends, and send no further requests."""
        self._abandoned = True
        self._source.end_within(LAST_CALLS_SECONDS)
        self.release()

    def release(self) -> None:
        """Release the current task, so that another trainer takes it over at once."""
        if (task := self._take_current()) is not None:
            with suppress(RegattaError):
                self._source.release(task)

    def _release_soon(self) -> None:
        """Release the task after user code left the loop in the middle: by ``break``, or by an error for ``crash``."""
        if self.task is not None:
            threading.Timer(LEAVING_SECONDS, self.release).start()

    def crash(self, error: BaseException) -> None:
        """Report the place of an error of user code at the current batch, so that others search there."""
        self._abandoned = True
        self._source.end_within(LAST_CALLS_SECONDS)
        self.fail(messages.SCRIPT_RAISED(error=f"{type(error).__name__}: {error}"), self._place)

    def fail(self, why: str, place: Place | None = None) -> None:
        """Report that the current task cannot be done."""
        if (task := self._take_current()) is not None:
            with suppress(RegattaError):
                self._source.fail(task, why, place)

    def _cannot_read(self, error: _NoFile) -> None:
        """Report unreadable data: no fault of the script or of a record. Raises if the script requests that."""
        if (task := self._take_current()) is not None:
            unread = Unread.LEAVE_OUT if self._reader.on_bad_record == SKIP else Unread.FAIL_JOB
            self._source.cannot_read(task, str(error), unread)
        if self._reader.on_bad_record == RAISE:
            raise error

    def _take_current(self) -> Task | None:
        """Take the current task in order to report on it. Batches that were read and not trained on are dropped."""
        with self._task_lock:
            task, self.task = self.task, None
        if (ahead := self._ahead) is not None:
            ahead.stop()
        return task

    def _ask(self) -> Answer:
        finished, self._finished = self._finished, None
        return self._source.next_task(*([finished] if finished else ()))

    def _work(self, task: Task) -> Iterator[Any]:
        self.task = task
        self._begin(task.pass_id)
        try:
            with self._reading(task) as batches:
                yield from self._keeping(task, self._with_events(self._placed(task, islice(batches, task.skip, None))))
        except _NoFile as error:
            self._cannot_read(error)
            return
        except _BadBytes as error:
            self.fail(str(error))
            return
        except BadRecord as error:
            self.fail(str(error), (error.place, error.place + 1))
            if self._reader.on_bad_record == RAISE and error.__cause__:
                raise error.__cause__ from None
            return
        if self.task is not task:  # it was released meanwhile
            return
        if (params := self._params()) is not None:
            params.finish(task.pass_id, task.task_id)
        self.task, self._finished = None, task

    # --- Reading beside training -------------------------------------------------------------------------------------
    @contextmanager
    def _reading(self, task: Task) -> Iterator[Iterator[tuple[Place, Any]]]:
        """The batches of a task, read in the background if worthwhile, possibly since before it was begun."""
        ahead = self._read_before(task)
        if ahead is None and not self._reader.reads_ahead(_count(task)):
            yield self._read(task)
            return
        self._ahead = ahead = ahead or ReadAhead(partial(self._read, task), self._readers)
        ahead.begin()
        try:
            yield ahead
        finally:
            ahead.stop()
            self._ahead = None

    def _read(self, task: Task, wanted: Wanted = iter) -> Generator[tuple[Place, Any]]:
        seed = (self._seed, task.pass_id, task.task_id)
        return self._reader.batches(_records(task), seed, task.chunks[0].format, wanted)

    def _read_before(self, task: Task) -> _Reading | None:
        """Return the reading of a task that started before it was begun; readings of earlier tasks are stopped."""
        while self._coming:
            other, ahead = self._coming.popleft()
            if _read_of(other) == _read_of(task):
                return ahead
            ahead.stop()
        return None

    def _read_on(self) -> None:
        """Start to read the next tasks after the current one, at most as many as there are batches ahead."""
        if not self._reader.reads_on or len(self._coming) >= self._reader.ahead:
            return
        for task in islice(self._source.coming(), len(self._coming), self._reader.ahead):
            before = self._reader.batch if self._reader.decodes(task.chunks[0].format) else None
            self._coming.append((task, ReadAhead(partial(self._read, task), self._readers, before)))

    def _stop_reading(self) -> None:
        for _task, ahead in self._coming:
            ahead.stop()
        self._coming.clear()
        self._readers.close()

    def _placed(self, task: Task, batches: Iterator[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
        """The batches; for each, the parameters are given its position in the data."""
        for count, batch in enumerate(batches, task.skip + 1):
            if (params := self._params()) is not None:
                params.stand(task.pass_id, task.task_id, count)
            yield batch

    def _with_events(self, batches: Iterator[tuple[Place, Any]]) -> Iterator[Any]:
        """The batches, each between its two events."""
        for self._place, batch in batches:
            number, self._batch = self._batch, self._batch + 1
            pass_id = self._reported_pass
            self._listeners.notify(BeginIteration(pass_id, number))
            self._reports.last.clear()
            yield batch
            values = dict(self._reports.last)
            cost = values.pop("cost", float("nan"))
            self._listeners.notify(EndIteration(pass_id, number, cost, values))

    def _keeping(self, task: Task, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, while the task is extended at intervals."""
        extended_at = time.monotonic()
        for batch in batches:
            self._read_on()
            yield batch
            if time.monotonic() - extended_at > EXTEND_SECONDS:
                extended_at = time.monotonic()
                self._source.extend(task)

    # --- Passes ------------------------------------------------------------------------------------------------------
    def _begin(self, pass_id: int) -> None:
        self._pass = pass_id
        if pass_id > self._reported_pass:
            self._reported_pass, self._batch = pass_id, 0
            self._listeners.notify(BeginPass(pass_id))
        if (params := self._params()) is not None:
            params.begin_pass(pass_id)

    def _end(self, pass_id: int) -> None:
        """End a pass. A pass in which this trainer had nothing to do is begun and ended at once."""
        self._pass = None
        if (params := self._params()) is not None:
            params.end_pass(pass_id)
        if pass_id > self._reported_pass:
            self._reported_pass, self._batch = pass_id, 0
            self._listeners.notify(BeginPass(pass_id))
        self._listeners.notify(EndPass(pass_id, dict(self._reports.last)))

    def _wait(self, wait: Wait) -> None:
        if self._pass is not None and (params := self._params()) is not None:
            params.end_pass(self._pass)
            self._pass = None
        self._pause(wait.seconds)

    def _leave(self) -> None:
        if not self._stays and (params := self._params()) is not None:
            params.leave()
