"""Going on with the task that was given ahead while the master does not answer.

The master cannot commit anything while its store is away, and answers nothing before it is committed. So a trainer
that has done its task asks for the next one beside its work, and begins the one that it was given ahead if the answer
does not come at once. It waits where that one is done too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from runtime.master.messages import Unread
from runtime.trainer.tasks import Answer, Place, Task, TaskSource

# A master whose store answers needs milliseconds.
PATIENCE_SECONDS = 1.0

_T = TypeVar("_T")


class Prefetching:
    """A task source over ``source``, whose master gives tasks ahead. Any thread may call; one call at a time."""

    def __init__(self, source: TaskSource, patience: float = PATIENCE_SECONDS) -> None:
        self._source = source
        self._patience = patience
        self._calling = threading.Lock()
        self._ahead: Task | None = None  # given, and not begun
        self._begun: Task | None = None  # begun, though the request for it is not answered yet
        self._asked: Future[Answer] | None = None  # that request
        self._kept: Answer | None = None  # an answer that the loop has not been given

    def next_task(self, done: Task | None = None) -> Answer:
        with self._calling:
            return self._next_task(done)

    def done(self, task: Task) -> bool:
        with self._calling:
            self._catch_up()
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
        if self._asked is not None:
            return True
        asked = _beside(lambda: self._source.extend(task))
        return not wait([asked], self._patience).done or asked.result()

    def save_request(self, seconds: float) -> bool:
        return self._source.save_request(seconds)

    def close(self) -> None:
        self._source.close()

    def _next_task(self, done: Task | None) -> Answer:
        self._catch_up()
        if self._kept is not None:  # the task was another's meanwhile
            if done is not None:
                self._source.done(done)
            kept, self._kept = self._kept, None
            return self._noted(kept)
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self._noted(self._source.next_task(done))
        asked = _beside(lambda: self._source.next_task(done))
        if wait([asked], self._patience).done:
            return self._noted(asked.result())
        self._asked, self._begun = asked, ahead
        return ahead

    def _noted(self, answer: Answer) -> Answer:
        self._ahead = answer.prefetched if isinstance(answer, Task) else None
        return answer

    def _catch_up(self) -> None:
        """Wait for the answer that is due. It names the task that was begun, unless the master gave that to another."""
        if self._asked is None or self._begun is None:
            return
        asked, begun = self._asked, self._begun
        self._asked = self._begun = None
        answer = asked.result()
        if isinstance(answer, Task) and _dispatch(answer) == _dispatch(begun):
            self._ahead = answer.prefetched
        else:
            self._kept = answer

    def _give_up_ahead(self) -> None:
        """The master takes back what it gave ahead of a trainer that does not do its task."""
        self._catch_up()
        self._ahead = None


def _beside(call: Callable[[], _T]) -> Future[_T]:
    """Make a call in a thread of its own."""
    future: Future[_T] = Future()

    def make() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  who asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=make, name="asking the master", daemon=True).start()
    return future


def _dispatch(task: Task) -> tuple[int, int, int]:
    return (task.pass_id, task.task_id, task.epoch)
