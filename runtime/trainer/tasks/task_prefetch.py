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
    """A request in the background, its start, and the number of done tasks that it reports."""

    answer: Future[Ahead]
    since: float
    done: int


class PrefetchedTasks:
    """The tasks that the master has given to this trainer and that are not begun, by its last answer.

    A task that is begun after a request was sent is none of them, although the answer may contain it.
    """

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()
        self.confirmed_at = 0.0  # when the last answer was requested
        self.ended: int | None = None  # the pass of which those are the last
        self.then: tuple[Task, ...] = ()  # the tasks likely to be given after its end
        self._depth = 0  # the number of tasks in the last answer
        self._begun: set[_Dispatch] = set()  # since the last request

    @property
    def are_scarce(self) -> bool:
        """Whether more should be requested: half of the last answer is used up, and more may follow in this pass."""
        return self.ended is None and 2 * len(self.tasks) <= self._depth

    def begin_next(self) -> Task:
        """Remove the next task, which is begun."""
        task = self.tasks.popleft()
        self._begun.add(_dispatch(task))
        return task

    def start_request(self) -> None:
        """Start a request: the tasks begun so far are not in its answer."""
        self._begun.clear()

    def replace(self, ahead: Ahead, asked_at: float) -> None:
        """Replace all by the answer to a request that was sent at ``asked_at``."""
        self.tasks = deque(task for task in ahead.tasks if _dispatch(task) not in self._begun)
        self._depth, self.ended, self.then = len(ahead.tasks), ahead.ended, ahead.then
        self.confirmed_at = asked_at

    def take_end(self) -> int | None:
        """The pass that ends for this trainer, once; None if the master has to be asked."""
        ended, self.ended = self.ended, None
        return ended

    def clear(self) -> None:
        self.ended, self.then = None, ()
        self.tasks.clear()


class DoneTasks:
    """Finished tasks that no answer of the master has covered yet, in order.

    Each is in one notice at most, which may be lost, and in every request until one is answered.
    """

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._notified = 0  # how many of them a notice was sent for

    def add(self, tasks: Sequence[Task]) -> None:
        self._tasks += tasks

    @property
    def all(self) -> tuple[Task, ...]:
        """The tasks for a request."""
        return tuple(self._tasks)

    @property
    def without_notice(self) -> Sequence[Task]:
        """The tasks for a notice."""
        return self._tasks[self._notified :]

    def record_notice(self) -> None:
        """Record that a notice of all was sent."""
        self._notified = len(self._tasks)

    def drop(self, count: int) -> None:
        """Drop the first ones: the master has received them."""
        del self._tasks[:count]
        self._notified = max(0, self._notified - count)


class PrefetchingSource:
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
        self._prefetched = PrefetchedTasks()
        self._done = DoneTasks()
        self._current: Task | None = None  # begun, and not done
        self._request: _Request | None = None

    def next_task(self, *done: Task) -> Answer:
        with self._calling:
            self._done.add(done)
            self._current = None
            self._receive(0.0)
            if self._prefetched.tasks and time.monotonic() > self._prefetched.confirmed_at + self._fresh:
                self._confirm()
            if not self._prefetched.tasks:
                self._receive(None)
            return self._begin() if self._prefetched.tasks else self._ask()

    def coming(self) -> Sequence[Task]:
        with self._calling:
            request = self._request
            if request is not None and request.answer.done() and not request.answer.exception():
                self._receive(0.0)
            return (*self._prefetched.tasks, *self._prefetched.then)

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
        if (request := self._request) is not None and not request.answer.done():
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
        task = self._current = self._prefetched.begin_next()
        notified = self._notify(task)
        if self._request is None and (self._prefetched.are_scarce or not notified):
            self._ask_in_background()
        return task

    def _ask(self) -> Answer:
        """No task is left: the pass has ended for this trainer, as announced, or the master is asked."""
        if (ended := self._prefetched.take_end()) is not None:
            self._notify()
            self._source.saw_end(ended)
            return PassEnd(ended)
        now, done = time.monotonic(), self._done.all
        answer = self._source.next_task(*done)
        self._done.drop(len(done))
        if isinstance(answer, Task):
            self._current = answer
            self._prefetched.replace(Ahead(answer.prefetched), now)
        return answer

    def _notify(self, *begun: Task) -> bool:
        """Send a notice of done and begun tasks; return whether it was sent. The next request repeats it."""
        sent = self._source.begun(self._done.without_notice, begun)
        if sent:
            self._done.record_notice()
        return sent

    def _confirm(self) -> None:
        """Confirm which prefetched tasks still belong to this trainer, and wait a moment for the answer."""
        if self._request is None:
            self._ask_in_background()
        if self._request is not None:
            self._receive(max(0.0, self._request.since + self._patience - time.monotonic()))

    # --- Requests in the background -----------------------------------------------------------------------------------
    def _ask_in_background(self) -> None:
        done, begun = self._done.all, () if self._current is None else (self._current,)
        self._prefetched.start_request()
        self._request = _Request(
            self._background.call(lambda: self._source.ahead(done, begun)), time.monotonic(), len(done)
        )

    def _receive(self, seconds: float | None) -> None:
        """Take the answer if it arrives within ``seconds`` (None: wait for it). Raises the error of the request."""
        request = self._request
        if request is None or not _is_done(request.answer, seconds):
            return
        self._request = None
        self._prefetched.replace(request.answer.result(), request.since)
        self._done.drop(request.done)

    def _drop_prefetched(self) -> None:
        """Drop the prefetched tasks: the master takes them back from a trainer that does not do its task."""
        with suppress(RegattaError):
            self._receive(None)
        for task in self._done.all:
            self._source.done(task)
            self._done.drop(1)
        self._request = self._current = None
        self._prefetched.clear()


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
