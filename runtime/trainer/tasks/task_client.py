"""The source of a trainer's tasks: the master over the network, or a queue in its own process.

source = TaskClient(address, trainer_index=0, incarnation=17)        # or LocalTasks(table, passes=5)
match source.next_task():                # next_task(task) also reports that one is done
    case Task() as task: ...; source.done(task)
    case Wait(seconds): ...                  # ask again after this many seconds
    case PassEnd(pass_id): ...               # nothing more of this pass; but a lost trainer's task may still come
    case JobDone(): ...
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from runtime.errors import Leaving, Lost, Refused, RegattaError, WireError
from runtime.master.messages import (
    Ahead,
    Answer,
    JobDone,
    PassEnd,
    Task,
    Trainer,
    Unread,
    Wait,
    ahead_from_json,
    answer_from_json,
)
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.task_table import TaskTable
from runtime.master.types import Key, Plan, Verdict
from runtime.messages import training as messages
from runtime.protocol.client import DEADLINE_SECONDS, Client
from runtime.protocol.frames import Op

__all__ = ["Answer", "JobDone", "JobFailed", "LocalTasks", "PassEnd", "Task", "TaskClient", "TaskSource", "Wait"]

JOB_FAILED = "job_failed"
# A lost master is started again, or another takes over, within this time.
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
# Answers of a master that was replaced, or that cannot reach its store.
_TRY_AGAIN = ("not_owner", "store_unavailable")


# Records of a task, (first, end), counted as in ``Task.ranges``.
Place = tuple[int, int]

_T = TypeVar("_T")


class JobFailed(RegattaError):
    """The master has failed the job. The message names the records that no trainer could process."""


class TaskSource(Protocol):
    """The requests of a trainer to the master. Reports return False if they came too late and another has the task."""

    def next_task(self, *done: Task) -> Answer:
        """Return more work. ``done`` are finished tasks, which need no other report."""
        ...

    def coming(self) -> Sequence[Task]:
        """The next results of ``next_task``, as far as they are known or likely, in order. Returns at once.

        The ``epoch`` of a likely task is not the one with which it will be given.
        """
        ...

    def done(self, task: Task) -> bool: ...

    def fail(self, task: Task, why: str, place: Place | None = None) -> bool: ...

    def cannot_read(self, task: Task, why: str, unread: Unread) -> bool: ...

    def release(self, task: Task) -> bool: ...

    def extend(self, task: Task) -> bool: ...

    def save_request(self, seconds: float) -> bool: ...

    def end_within(self, seconds: float) -> None:
        """This process ends: calls raise ``Lost`` after ``seconds`` in all if the master does not answer.

        From any thread.
        """
        ...

    def close(self) -> None: ...


class AheadSource(TaskSource, Protocol):
    """A source whose master gives tasks ahead. Beginning one of them is reported."""

    def ahead(self, done: Sequence[Task], begun: Sequence[Task]) -> Ahead:
        """Report done and begun tasks; return the tasks that follow."""
        ...

    def begun(self, done: Sequence[Task], begun: Sequence[Task]) -> bool:
        """Report done and begun tasks if that does not wait; return whether it was sent. It may be lost."""
        ...

    def saw_end(self, pass_id: int) -> None:
        """This trainer has reached the end of a pass, which was known in advance."""
        ...


class _Position:
    """The state between a trainer's requests: their number, and the last pass whose end it received."""

    def __init__(self) -> None:
        self.request = 1
        self.ended: int | None = None

    def take(self, answer: Answer) -> Answer:
        self.request += 1
        if isinstance(answer, Task):
            self.ended = answer.pass_id - 1
        elif isinstance(answer, PassEnd):
            self.ended = answer.pass_id
        return answer


class _Home(NamedTuple):
    """The address of the master, and its incarnation (0: any)."""

    address: str
    incarnation: int


class _Outdated(RegattaError):
    """A replaced master answered."""


class TaskClient:
    """The client of the master at ``address``, whose incarnation is ``master``.

    Any thread may call; one call at a time. A call whose master is lost is repeated with the same number, so that it
    gets the same task; it goes to the master that ``move`` names, if there is a new one. Answers of an older master do
    not count. A call raises ``runtime.errors.Lost`` when no master has answered for ``patience`` seconds (``deadline``
    seconds of silence make one attempt), JobFailed when the master has failed the job, Refused when this trainer has
    been replaced, and Leaving when ``leaving`` returns that the process should end.
    """

    def __init__(
        self,
        address: str,
        trainer_index: int,
        incarnation: int,
        *,
        master: int = 0,
        job: int = 0,
        deadline: float = DEADLINE_SECONDS,
        patience: float = PATIENCE_SECONDS,
        leaving: Callable[[], bool] = lambda: False,
        secret: bytes = b"",
    ) -> None:
        self._trainer = trainer_index
        self._position = _Position()
        self._patience = patience
        self._leaving = leaving
        self._end_at = math.inf
        self._calling = threading.Lock()
        self._moving = threading.Condition()
        self._home = self._asked = _Home(address, master)
        self._open: Callable[[_Home], Client] = lambda home: Client(
            home.address,
            name="master",
            job=job,
            incarnation=incarnation,
            expected=home.incarnation,
            deadline=deadline,
            leaving=self._should_stop,
            secret=secret,
        )
        self._client = self._open(self._home)
        self._notices = self._open(self._home)  # its messages are not answered

    def move(self, address: str, master: int = 0) -> None:
        """Another master serves now, at another address. A call that waits for the old one is sent to the new one."""
        with self._moving:
            self._home = _Home(address, master)
            self._moving.notify_all()

    def next_task(self, *done: Task) -> Answer:
        asked = {"request": self._position.request, "ended": self._position.ended, "done": _named(done)}
        answer = _understood(self._call(Op.TASK_GET, asked), answer_from_json)
        self._notices.connect()
        return self._position.take(answer)

    def coming(self) -> Sequence[Task]:
        return ()

    def ahead(self, done: Sequence[Task], begun: Sequence[Task]) -> Ahead:
        body = self._call(Op.TASK_AHEAD, {"done": _named(done), "begun": _named(begun)})
        self._notices.connect()
        return _understood(body, ahead_from_json)

    def begun(self, done: Sequence[Task], begun: Sequence[Task]) -> bool:
        body = {"trainer": self._trainer, "done": _named(done), "begun": _named(begun)}
        return self._notices.notify(Op.TASK_BEGUN, body)

    def saw_end(self, pass_id: int) -> None:
        self._position.take(PassEnd(pass_id))

    def done(self, task: Task) -> bool:
        return self._report(Op.TASK_DONE, task)

    def fail(self, task: Task, why: str, place: Place | None = None) -> bool:
        return self._report(Op.TASK_FAIL, task, why=why, place=place)

    def cannot_read(self, task: Task, why: str, unread: Unread) -> bool:
        return self._report(Op.TASK_FAIL, task, why=why, unread=unread)

    def release(self, task: Task) -> bool:
        return self._report(Op.TASK_RELEASE, task)

    def extend(self, task: Task) -> bool:
        return self._report(Op.TASK_EXTEND, task)

    def save_request(self, seconds: float) -> bool:
        return bool(self._call(Op.SAVE_REQUEST, {"seconds": seconds})["granted"])

    def end_within(self, seconds: float) -> None:
        self._end_at = time.monotonic() + seconds
        with self._moving:
            self._moving.notify_all()

    def close(self) -> None:
        self._client.close()
        self._notices.close()

    def _report(self, op: Op, task: Task, **more: object) -> bool:
        key = {"pass_id": task.pass_id, "task_id": task.task_id, "epoch": task.epoch}
        return bool(self._call(op, {**key, **more})["counted"])

    def _call(self, op: Op, body: Mapping[str, object]) -> dict[str, object]:
        with self._calling:
            return self._insist(op, {"trainer": self._trainer, **body})

    def _insist(self, op: Op, body: Mapping[str, object]) -> dict[str, object]:
        give_up = time.monotonic() + self._patience
        while True:
            self._follow()
            try:
                return self._ask(op, body)
            except Refused as refused:
                if refused.code == JOB_FAILED:
                    raise JobFailed(refused.why) from refused
                if refused.code not in _TRY_AGAIN:
                    raise
                why: RegattaError = refused
            except (Lost, Leaving, _Outdated) as error:
                why = error
            if self._leaving():
                raise Leaving(messages.STOP_REQUESTED_WHILE_WAITING()) from why
            if time.monotonic() >= min(give_up, self._end_at):
                raise Lost(messages.NO_MASTER_RESPONDED(seconds=f"{self._patience:g}", why=why)) from why
            self._await_move(why)

    def _ask(self, op: Op, body: Mapping[str, object]) -> dict[str, object]:
        answer = self._client.request(op, body)
        if answer.head.incarnation < self._asked.incarnation:
            raise _Outdated(messages.REPLACED_MASTER_RESPONDED())
        return dict(answer.body)

    def _follow(self) -> None:
        """Open a connection to the present master."""
        if self._home != self._asked:
            self._asked = self._home
            self.close()
            self._client, self._notices = self._open(self._asked), self._open(self._asked)

    def _await_move(self, why: RegattaError) -> None:
        """Wait a moment for a new master after a failed request. A lost one was waited for already."""
        with self._moving:
            if not isinstance(why, Lost | Leaving) and self._home == self._asked:
                self._moving.wait(_LOOK_SECONDS)

    def _should_stop(self) -> bool:
        return self._home != self._asked or self._leaving() or time.monotonic() >= self._end_at


def _named(tasks: Sequence[Task]) -> list[tuple[int, int, int]]:
    """Dispatches in their form on the wire."""
    return [(task.pass_id, task.task_id, task.epoch) for task in tasks]


def _understood(body: dict[str, object], read: Callable[[Mapping[str, Any]], _T]) -> _T:
    try:
        return read(body)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(messages.MASTER_RESPONSE_UNKNOWN(body=body)) from error


class LocalTasks:
    """The same interface to a queue in this process, for a trainer that runs alone. Tasks come in order."""

    def __init__(self, table: TaskTable, passes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._me = Trainer(0, 1)
        self._position = _Position()
        self._queue = TaskQueue.begin(Plan(passes, quarantine=True), table, clock())
        self._queue.members([self._me], clock())

    def next_task(self, *done: Task) -> Answer:
        for task in done:
            self.done(task)
        if self._queue.failed:
            raise JobFailed(self._queue.failed)
        answer = self._queue.get(self._me, self._position.request, self._position.ended, self._clock())
        return self._position.take(answer)

    def coming(self) -> Sequence[Task]:
        return ()

    def done(self, task: Task) -> bool:
        return self._queue.done(self._key(task), self._clock()) is Verdict.OK

    def fail(self, task: Task, why: str, place: Place | None = None) -> bool:
        return self._queue.fail(self._key(task), why, self._clock(), place) is Verdict.OK

    def cannot_read(self, task: Task, why: str, unread: Unread) -> bool:
        return self._queue.cannot_read(self._key(task), why, unread, self._clock()) is Verdict.OK

    def release(self, task: Task) -> bool:
        return self._queue.release(self._key(task), self._clock()) is Verdict.OK

    def extend(self, task: Task) -> bool:
        return self._queue.extend(self._key(task), self._clock()) is Verdict.OK

    def save_request(self, seconds: float) -> bool:
        return self._queue.save_request(self._me, seconds, self._clock())

    def end_within(self, seconds: float) -> None:
        """Calls take no time."""

    def close(self) -> None:
        """Nothing is held open."""

    def _key(self, task: Task) -> Key:
        return Key(task.pass_id, task.task_id, task.epoch, self._me)
