"""Going from one task to the next without waiting for the master.

The master gives tasks ahead, and answers nothing before it is committed. So a trainer that has its next task goes on
with it at once: it sends word, which nobody answers, before it begins, so that the master knows which task it is at
whatever becomes of it, and asks for more beside its work. What the master has not confirmed for a while is asked about
first, and begun all the same where no answer comes: then nothing can be committed, and nobody else has it either.
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
# What the master said so long ago may have changed: it takes tasks from who is slow, for others.
FRESH_SECONDS = 1.0

_T = TypeVar("_T")
_Dispatch = tuple[int, int, int]


class _Request(NamedTuple):
    """A question that is on its way, since when, and how many finishes it tells of."""

    answer: Future[Ahead]
    since: float
    reported: int


class Prefetching:
    """A task source over ``source``, whose master gives tasks ahead. Any thread may call; one call at a time.

    ``patience`` is how long it waits for an answer where it has a task without, ``fresh`` how long an answer holds.
    """

    def __init__(self, source: AheadSource, patience: float = PATIENCE_SECONDS, fresh: float = FRESH_SECONDS) -> None:
        self._source = source
        self._patience = patience
        self._fresh = fresh
        self._calling = threading.Lock()
        self._background = _Background()
        self._held: deque[Task] = deque()  # given, and not begun
        self._depth = 0  # how many the master gave last
        self._confirmed = 0.0  # when that was asked for
        self._ended: int | None = None  # the pass of which those are the last
        self._then: tuple[Task, ...] = ()  # what is likely to be given after its end
        self._current: Task | None = None  # begun, and not done
        self._finished: list[Task] = []  # done, and no answer has come since
        self._notified = 0  # how many of them a word was sent of
        self._asked: _Request | None = None
        self._begun: set[_Dispatch] = set()  # since that was asked

    def next_task(self, *done: Task) -> Answer:
        with self._calling:
            self._finished += done
            self._current = None
            self._receive(0.0)
            if self._held and time.monotonic() > self._confirmed + self._fresh:
                self._make_sure()
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
            self._give_up_ahead()
            return self._source.fail(task, why, place)

    def cannot_read(self, task: Task, why: str, unread: Unread) -> bool:
        with self._calling:
            self._give_up_ahead()
            return self._source.cannot_read(task, why, unread)

    def release(self, task: Task) -> bool:
        with self._calling:
            self._give_up_ahead()
            return self._source.release(task)

    def extend(self, task: Task) -> bool:
        """Nobody waits for long to be granted more time: no time runs out while nothing can be committed."""
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
        """Go on with the next of the tasks that were given ahead, and say so."""
        task = self._current = self._held.popleft()
        self._begun.add(_dispatch(task))
        reported = self._notify(task)
        scarce = self._ended is None and 2 * len(self._held) <= self._depth
        if self._asked is None and (scarce or not reported):
            self._ask_in_background()
        return task

    def _ask(self) -> Answer:
        """Nothing is left: the pass is over for this trainer, as was said before, or the master is asked."""
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
        """Send word of what was done and begun; whether it was sent. The next question tells it again."""
        reported = self._source.begun(self._finished[self._notified :], begun)
        if reported:
            self._notified = len(self._finished)
        return reported

    def _make_sure(self) -> None:
        """Ask what of the tasks that were given ahead is this trainer's still, and wait a moment for the answer."""
        if self._asked is None:
            self._ask_in_background()
        if self._asked is not None:
            self._receive(max(0.0, self._asked.since + self._patience - time.monotonic()))

    # --- Asking beside -----------------------------------------------------------------------------------------------
    def _ask_in_background(self) -> None:
        done, begun = tuple(self._finished), () if self._current is None else (self._current,)
        self._begun.clear()
        self._asked = _Request(
            self._background.call(lambda: self._source.ahead(done, begun)), time.monotonic(), len(self._finished)
        )

    def _receive(self, seconds: float | None) -> None:
        """Take the answer in if it comes within so long (None: wait for it). Raises what came in its place."""
        asked = self._asked
        if asked is None or not _there(asked.answer, seconds):
            return
        self._asked = None
        self._take(asked.answer.result(), asked.since)
        self._drop_reported(asked.reported)

    def _take(self, ahead: Ahead, asked_at: float) -> None:
        self._held = deque(task for task in ahead.tasks if _dispatch(task) not in self._begun)
        self._depth, self._ended, self._then = len(ahead.tasks), ahead.ended, ahead.then
        self._confirmed = asked_at

    def _drop_reported(self, reported: int) -> None:
        """The master has heard of the first of the finished tasks."""
        del self._finished[:reported]
        self._notified = max(0, self._notified - reported)

    def _give_up_ahead(self) -> None:
        """The master takes back what it gave ahead of a trainer that does not do its task."""
        with suppress(RegattaError):
            self._receive(None)
        while self._finished:
            self._source.done(self._finished[0])
            self._drop_reported(1)
        self._asked = self._current = self._ended = None
        self._then = ()
        self._held.clear()


class _Background:
    """A thread that makes calls, one after the other. It begins with the first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._runs = False

    def call(self, call: Callable[[], _T]) -> Future[_T]:
        """What the call gives or raises, later."""
        future: Future[_T] = Future()
        self._calls.put((call, future))
        if not self._runs:
            self._runs = True
            threading.Thread(target=self._run, name="asking the master", daemon=True).start()
        return future

    def close(self) -> None:
        """End it after the calls that were asked for."""
        self._calls.put(None)

    def _run(self) -> None:
        while (due := self._calls.get()) is not None:
            call, future = due
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  who asks for the result gets it
                future.set_exception(error)


def _there(future: Future[Any], seconds: float | None) -> bool:
    """Whether it is there within so long."""
    return future.done() or (seconds != 0.0 and bool(wait([future], seconds).done))


def _dispatch(task: Task) -> _Dispatch:
    return (task.pass_id, task.task_id, task.epoch)
