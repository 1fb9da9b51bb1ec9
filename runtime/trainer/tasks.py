"""Where a trainer gets its tasks: from the master over the wire, or from a queue in its own process.

source = TaskClient(address, trainer_index=0, incarnation=17)        # or LocalTasks(table, passes=5)
match source.next_task():
    case Task() as task: ...; source.done(task)
    case Wait(seconds): ...                  # ask again after so many seconds
    case PassEnd(pass_id): ...               # nothing more of this pass; but a lost trainer's task may still come
    case JobDone(): ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from runtime.errors import Refused, RegattaError, WireError
from runtime.master.messages import Answer, JobDone, PassEnd, Task, Trainer, Wait, answer_from_json
from runtime.master.queue import Key, Plan, TaskQueue, Verdict
from runtime.master.table import TaskTable
from runtime.protocol.client import DEADLINE_SECONDS, Client
from runtime.protocol.frames import Op

__all__ = ["Answer", "JobDone", "JobFailed", "LocalTasks", "PassEnd", "Task", "TaskClient", "TaskSource", "Wait"]

JOB_FAILED = "job_failed"


class JobFailed(RegattaError):
    """The master has given the job up. The sentence names the records that nobody could train on."""


class TaskSource(Protocol):
    """What a trainer needs of the master. Reports give False when they came too late and another has the task."""

    def next_task(self) -> Answer: ...

    def done(self, task: Task) -> bool: ...

    def fail(self, task: Task, why: str) -> bool: ...

    def release(self, task: Task) -> bool: ...

    def extend(self, task: Task) -> bool: ...

    def save_request(self, seconds: float) -> bool: ...

    def close(self) -> None: ...


class _Position:
    """What a trainer remembers between its requests: their number, and the last pass that it saw the end of."""

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


class TaskClient:
    """Asks the master at ``address``. Not for two threads at once.

    Every call waits at most ``deadline`` seconds for a word of the master and then raises ``runtime.errors.Lost``; it
    raises JobFailed when the master has given up, Refused when this trainer has been replaced, and Leaving when
    ``leaving`` says that the process should end. A request whose answer was lost is asked again with the same number
    and gets the same task, also from a restarted master (``move``).
    """

    def __init__(
        self,
        address: str,
        trainer_index: int,
        incarnation: int,
        *,
        job: int = 0,
        deadline: float = DEADLINE_SECONDS,
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._trainer = trainer_index
        self._position = _Position()
        self._open: Callable[[str], Client] = partial(
            Client, name="master", job=job, incarnation=incarnation, deadline=deadline, leaving=leaving
        )
        self._client = self._open(address)

    def move(self, address: str) -> None:
        """The master has another address now."""
        self._client.close()
        self._client = self._open(address)

    def next_task(self) -> Answer:
        asked = {"request": self._position.request, "ended": self._position.ended}
        body = self._call(Op.TASK_GET, asked)
        try:
            return self._position.take(answer_from_json(body))
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"The master's answer is none that this version knows: {body}.") from error

    def done(self, task: Task) -> bool:
        return self._report(Op.TASK_DONE, task)

    def fail(self, task: Task, why: str) -> bool:
        return self._report(Op.TASK_FAIL, task, why=why)

    def release(self, task: Task) -> bool:
        return self._report(Op.TASK_RELEASE, task)

    def extend(self, task: Task) -> bool:
        return self._report(Op.TASK_EXTEND, task)

    def save_request(self, seconds: float) -> bool:
        return bool(self._call(Op.SAVE_REQUEST, {"seconds": seconds})["granted"])

    def close(self) -> None:
        self._client.close()

    def _report(self, op: Op, task: Task, **more: str) -> bool:
        key = {"pass_id": task.pass_id, "task_id": task.task_id, "epoch": task.epoch}
        return bool(self._call(op, {**key, **more})["counted"])

    def _call(self, op: Op, body: Mapping[str, object]) -> dict[str, object]:
        try:
            return self._client.call(op, {"trainer": self._trainer, **body})
        except Refused as refused:
            if refused.code == JOB_FAILED:
                raise JobFailed(refused.why) from refused
            raise


class LocalTasks:
    """The same over a queue in this process, for a trainer that runs alone. Tasks come in order."""

    def __init__(self, table: TaskTable, passes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._me = Trainer(0, 1)
        self._position = _Position()
        self._queue = TaskQueue.begin(Plan(passes), table, clock())
        self._queue.members([self._me], clock())

    def next_task(self) -> Answer:
        if self._queue.failed:
            raise JobFailed(self._queue.failed)
        answer = self._queue.get(self._me, self._position.request, self._position.ended, self._clock())
        return self._position.take(answer)

    def done(self, task: Task) -> bool:
        return self._queue.done(self._key(task), self._clock()) is Verdict.OK

    def fail(self, task: Task, why: str) -> bool:
        return self._queue.fail(self._key(task), why, self._clock()) is Verdict.OK

    def release(self, task: Task) -> bool:
        return self._queue.release(self._key(task), self._clock()) is Verdict.OK

    def extend(self, task: Task) -> bool:
        return self._queue.extend(self._key(task), self._clock()) is Verdict.OK

    def save_request(self, seconds: float) -> bool:
        return self._queue.save_request(self._me, seconds, self._clock())

    def close(self) -> None:
        """Nothing is held open."""

    def _key(self, task: Task) -> Key:
        return Key(task.pass_id, task.task_id, task.epoch, self._me)
