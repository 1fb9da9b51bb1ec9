"""A task source that continues from one task to the next without waiting for the master.

The master gives tasks ahead, and answers nothing before it is committed. So a trainer that has its next task begins it
at once. Before that it sends a notice without an answer, so that the master has its current task in case it is killed,
and requests more in the background. Tasks that the master has not confirmed for a while are confirmed first, and begun
without an answer too: then nothing can be committed, and no other trainer has them either.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from runtime.errors import RegattaError
from runtime.master.messages import Ahead, Unread
from runtime.trainer.tasks.task_client import AheadSource, Answer, PassEnd, Place, Task

# A master whose store answers needs milliseconds.
PATIENCE_SECONDS = 1.0
# An older answer of the master may be outdated: it takes tasks from slow trainers for others.
FRESH_SECONDS = 1.0

_T = TypeVar("_T")
_Dispatch = tuple[int, int, int]


class _Request(NamedTuple):
    """A request in the background, its start, and the number of finished tasks that it reports."""

    answer: Future[Ahead]
    since: float
    reported: int


class Prefetching:
    """A task source over ``source``, whose master gives tasks ahead. Any thread may call; one call at a time.

    ``patience`` is how long it waits for an answer if it has a task without it; ``fresh`` is how long an answer is
    valid.
    """

    def __init__(self, source: AheadSource, patience: float = PATIENCE_SECONDS, fresh: float = FRESH_SECONDS) -> None:
        self._source = source
        self._patience = patience
        self._fresh = fresh
        self._calling = threading.Lock()
        self._background = _Background()
        self._held: deque[Task] = deque()  # given, and not begun
        self._depth = 0  # the number of tasks in the last answer
        self._confirmed = 0.0  # when that was requested
        self._ended: int | None = None  # the pass of which those are the last
        self._then: tuple[Task, ...] = ()  # the tasks likely to be given after its end
        self._current: Task | None = None  # begun, and not done
        self._finished: list[Task] = []  # done, without an answer since
        self._notified = 0  # how many of them a notice was sent for
        self._asked: _Request | None = None
        self._begun: set[_Dispatch] = set()  # since the request in the background

    def next_task(self, *done: Task) -> Answer:
        with self._calling:
            self._finished += done
            self._current = None
            self._receive(0.0)
            if self._held and time.monotonic() > self._confirmed + self._fresh:
                self._confirm()
            if not self._held:
                self._receive(None)
            return self._begin() if self._held else self._ask()

    def coming(self) -> Sequence[Task]:
        with self._calling:
            if self._asked is not None and self._asked.answer.done() and not self._asked.answer.exception():
                self._receive(0.0)
            return (*self._held, *self._then)

    def done(self, task: Task) -> bool:
        with self._calling:
            self._receive(None)
            self._current = None
            return self._source.done(task)

    def fail(self, task: Task, why: str, place: Place | None = None) -> bool:
        with self._calling:
            self._drop_prefetched()
            return self._source.fail(task, why, place)

    def cannot_read(self, task: Task, why: str, unread: Unread) -> bool:
        with self._calling:
            self._drop_prefetched()
            return self._source.cannot_read(task, why, unread)

    def release(self, task: Task) -> bool:
        with self._calling:
            self._drop_prefetched()
            return self._source.release(task)

    def extend(self, task: Task) -> bool:
        """Extend a task. The wait is short: no task times out while nothing can be committed."""
        if self._asked is not None and not self._asked.answer.done():
            return True
        asked = self._background.call(lambda: self._source.extend(task))
        return not wait([asked], self._patience).done or asked.result()

    def save_request(self, seconds: float) -> bool:
        return self._source.save_request(seconds)

    def end_within(self, seconds: float) -> None:
        self._source.end_within(seconds)

    def close(self) -> None:
        self._background.close()
        self._source.close()

    # --- From task to task -------------------------------------------------------------------------------------------
    def _begin(self) -> Task:
        """Begin the next prefetched task, and report it."""
        task = self._current = self._held.popleft()
        self._begun.add(_dispatch(task))
        reported = self._notify(task)
        scarce = self._ended is None and 2 * len(self._held) <= self._depth
        if self._asked is None and (scarce or not reported):
            self._ask_in_background()
        return task

    def _ask(self) -> Answer:
        """No task is left: the pass has ended for this trainer, as announced, or the master is asked."""
        ended, self._ended = self._ended, None
        if ended is not None:
            self._notify()
            self._source.saw_end(ended)
            return PassEnd(ended)
        now, reported = time.monotonic(), len(self._finished)
        answer = self._source.next_task(*self._finished)
        self._drop_reported(reported)
        if isinstance(answer, Task):
            self._current = answer
            self._take(Ahead(answer.prefetched), now)
        return answer

    def _notify(self, *begun: Task) -> bool:
        """Send a notice of done and begun tasks; return whether it was sent. The next request repeats it."""
        reported = self._source.begun(self._finished[self._notified :], begun)
        if reported:
            self._notified = len(self._finished)
        return reported

    def _confirm(self) -> None:
        """Confirm which prefetched tasks still belong to this trainer, and wait a moment for the answer."""
        if self._asked is None:
            self._ask_in_background()
        if self._asked is not None:
            self._receive(max(0.0, self._asked.since + self._patience - time.monotonic()))

    # --- Requests in the background -----------------------------------------------------------------------------------
    def _ask_in_background(self) -> None:
        done, begun = tuple(self._finished), () if self._current is None else (self._current,)
        self._begun.clear()
        self._asked = _Request(
            self._background.call(lambda: self._source.ahead(done, begun)), time.monotonic(), len(self._finished)
        )

    def _receive(self, seconds: float | None) -> None:
        """Take the answer if it arrives within ``seconds`` (None: wait for it). Raises the error of the request."""
        asked = self._asked
        if asked is None or not _is_done(asked.answer, seconds):
            return
        self._asked = None
        self._take(asked.answer.result(), asked.since)
        self._drop_reported(asked.reported)

    def _take(self, ahead: Ahead, asked_at: float) -> None:
        self._held = deque(task for task in ahead.tasks if _dispatch(task) not in self._begun)
        self._depth, self._ended, self._then = len(ahead.tasks), ahead.ended, ahead.then
        self._confirmed = asked_at

    def _drop_reported(self, reported: int) -> None:
        """The master has received the first of the finished tasks."""
        del self._finished[:reported]
        self._notified = max(0, self._notified - reported)

    def _drop_prefetched(self) -> None:
        """Drop the prefetched tasks: the master takes them back from a trainer that does not do its task."""
        with suppress(RegattaError):
            self._receive(None)
        while self._finished:
            self._source.done(self._finished[0])
            self._drop_reported(1)
        self._asked = self._current = self._ended = None
        self._then = ()
        self._held.clear()


class _Background:
    """A thread that makes calls, one after the other. It starts with the first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._runs = False

    def call(self, call: Callable[[], _T]) -> Future[_T]:
        """A future of the result or error of the call."""
        future: Future[_T] = Future()
        self._calls.put((call, future))
        if not self._runs:
            self._runs = True
            threading.Thread(target=self._run, name="asking the master", daemon=True).start()
        return future

    def close(self) -> None:
        """End the thread after the pending calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (due := self._calls.get()) is not None:
            call, future = due
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  the future raises it
                future.set_exception(error)


def _is_done(future: Future[Any], seconds: float | None) -> bool:
    """Whether the future is done within ``seconds``."""
    return future.done() or (seconds != 0.0 and bool(wait([future], seconds).done))


def _dispatch(task: Task) -> _Dispatch:
    return (task.pass_id, task.task_id, task.epoch)
