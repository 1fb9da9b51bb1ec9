"""The queue on the wire: requests in, one commit for all that came meanwhile, answers out.

The queue's time is the time that masters have served: it goes on from the last commit when another master takes over,
so that no deadline passes while nobody could have been told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from runtime.coordination.base import Clock, StoreUnavailable
from runtime.errors import Lost, Refused, RegattaError
from runtime.master.ledger import Behind, Ledger
from runtime.master.messages import Answer, Trainer, Wait, answer_to_json
from runtime.master.queue import TaskQueue
from runtime.master.state import Changes, Happening, Key, Plan, Verdict
from runtime.master.table import TaskTable
from runtime.protocol.connection import Closed, Message, refuse_blocks
from runtime.protocol.frames import Header, Op
from runtime.protocol.server import reply

JOB_FAILED = "job_failed"
# A trainer that has to wait is answered when there is news, or after this long: well before it counts us as lost.
HOLD_SECONDS = 2.0
# How long a request is tried again while the store does not answer.
STORE_PATIENCE_SECONDS = 30.0
STORE_PAUSE_SECONDS = 0.1
# Commits begin at least so far apart: all that is asked for meanwhile is one transaction.
COMMIT_SECONDS = 0.0025

log = logging.getLogger("master")

Operation = Callable[[TaskQueue, float], Any]


class View(NamedTuple):
    """What may be read of the queue at any time: as of the last commit."""

    over: bool
    failed: str
    trainers: bool
    deadline: float | None

    @classmethod
    def of(cls, queue: TaskQueue, now: float = 0.0) -> View:
        return cls(queue.finished or bool(queue.failed), queue.failed, bool(queue.live), queue.next_deadline(now))


class Master:
    """The queue with its lock, its ledger and its clock. All methods may be called from any thread.

    ``tell`` is called with what has happened once it is committed. Errors of the ledger (``Lost``) go to the caller and
    stay in ``lost``.
    """

    def __init__(
        self,
        plan: Plan,
        table: TaskTable,
        ledger: Ledger,
        tell: Callable[[Sequence[Happening]], object],
        clock: Clock = time.monotonic,
    ) -> None:
        self._plan = plan
        self._table = table
        self._ledger = ledger
        self._tell = tell
        self._clock = clock
        self._waiting: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._next_commit = clock()
        self._news = threading.Condition()
        self._changes = 0
        self._live: tuple[Trainer, ...] | None = None  # None until somebody says
        self._had_trainers = False
        self._closed = threading.Event()
        self.lost: RegattaError | None = None
        self._began = clock()
        self._queue = TaskQueue.begin(plan, table, 0.0)
        self._view = View.of(self._queue)
        self._must_load = True
        threading.Thread(target=self._commit_for_ever, name="commits", daemon=True).start()
        self.change(lambda queue, now: None)

    # --- What the process does ---------------------------------------------------------------------------------------
    def change(self, operation: Operation) -> Any:
        """Do ``operation`` on the queue and commit; gives what the operation gave.

        Whoever comes while a commit is on its way is committed with all who came meanwhile, in one transaction.
        """
        ticket = _Ticket(operation)
        self._waiting.put(ticket)
        return ticket.outcome()

    def members(self, live: Collection[Trainer]) -> None:
        """The trainers that live now. An error goes to ``lost``, for the caller could do nothing about it."""
        trainers = self._live = tuple(sorted(live))
        self._had_trainers = self._had_trainers or bool(live)
        try:
            self._patiently(lambda queue, now: queue.members(trainers, now))
        except RegattaError as error:
            self.lost = error
            self.wake()

    def run(self, stop: Callable[[], bool]) -> None:
        """Mind the deadlines until ``stop``, until the job is over and its trainers have left, or until ``lost``."""
        while not (stop() or self.over or self.lost):
            seen, due = self._changes, self._view.deadline
            self._wait_for_news(seen, 1.0 if due is None else min(1.0, max(0.0, due - self._now())))
            if due is not None and self._now() >= due:
                self._patiently(lambda queue, now: queue.tick(now))

    def close(self) -> None:
        """Let everybody go who waits for news, and commit no more than what has been asked for."""
        self._closed.set()
        self._waiting.put(None)
        self.wake()

    def wake(self) -> None:
        """Make ``run``, and all who wait for news, look again."""
        with self._news:
            self._news.notify_all()

    @property
    def over(self) -> bool:
        """The job is done or failed, and all its trainers have been told and are gone."""
        return self._view.over and self._had_trainers and not self._view.trainers

    @property
    def failed(self) -> str:
        """Why the job cannot go on, empty if it can."""
        return self._view.failed

    # --- What trainers ask -------------------------------------------------------------------------------------------
    def get(
        self,
        trainer: Trainer,
        request: int,
        ended: int | None,
        waiting: Callable[[], None],
        finished: Key | None = None,
    ) -> Answer:
        """Give work, or hold the answer until there is news. ``finished`` is done, in the same commit."""

        def ask(queue: TaskQueue, now: float) -> Answer:
            if finished is not None:
                queue.done(finished, now)
            return queue.get(trainer, request, ended, now)

        give_up = self._clock() + HOLD_SECONDS
        while True:
            seen = self._changes
            self._refuse_replaced(trainer)
            answer: Answer = self._patiently(ask, waiting)
            if self._view.failed:
                raise Refused(JOB_FAILED, self._view.failed)
            left = give_up - self._clock()
            if not isinstance(answer, Wait):
                return answer
            if left <= 0 or self._closed.is_set():
                return Wait(0.0)
            self._wait_for_news(seen, left)

    def report(
        self, op: Op, key: Key, why: str, waiting: Callable[[], None], place: tuple[int, int] | None = None
    ) -> Verdict:
        """A trainer's word on a task that it has. ``why`` and ``place`` (records first, end) go with a failure."""
        operations: Mapping[Op, Operation] = {
            Op.TASK_DONE: lambda queue, now: queue.done(key, now),
            Op.TASK_FAIL: lambda queue, now: queue.fail(key, why, now, place),
            Op.TASK_RELEASE: lambda queue, now: queue.release(key, now),
            Op.TASK_EXTEND: lambda queue, now: queue.extend(key, now),
        }
        return Verdict(self._patiently(operations[op], waiting))

    def save_request(self, trainer: Trainer, seconds: float, waiting: Callable[[], None]) -> bool:
        return bool(self._patiently(lambda queue, now: queue.save_request(trainer, seconds, now), waiting))

    def _refuse_replaced(self, trainer: Trainer) -> None:
        if any(trainer.index == other.index and trainer < other for other in self._live or ()):
            raise Refused("replaced", f"Another process runs as {trainer} now; this one has to end.")

    # --- Committing --------------------------------------------------------------------------------------------------
    def _patiently(self, operation: Operation, waiting: Callable[[], None] = lambda: None) -> Any:
        """``change``, tried again while the store does not answer. Raises StoreUnavailable in the end."""
        give_up = self._clock() + STORE_PATIENCE_SECONDS
        while True:
            try:
                return self.change(operation)
            except (StoreUnavailable, Behind):
                if self._clock() >= give_up or self._closed.wait(STORE_PAUSE_SECONDS):
                    raise
                waiting()

    def _commit_for_ever(self) -> None:
        while (first := self._waiting.get()) is not None:
            self._closed.wait(max(0.0, self._next_commit - self._clock()))
            self._next_commit = self._clock() + COMMIT_SECONDS
            batch, more = [first], True
            while more and not self._waiting.empty():
                if more := (ticket := self._waiting.get()) is not None:
                    batch.append(ticket)
            self._commit_all(batch)
            if not more:
                break
        self._refuse_all()

    def _refuse_all(self) -> None:
        while not self._waiting.empty():
            if (ticket := self._waiting.get()) is not None:
                ticket.settle(StoreUnavailable("This master is ending. Ask the next one."))

    def _commit_all(self, batch: Sequence[_Ticket]) -> None:
        error: RegattaError | None = None
        try:
            self._commit(batch)
        except (StoreUnavailable, Behind) as passing:
            error = passing
        except RegattaError as final:
            error = self.lost = final
        except Exception:
            log.exception("A change broke off.")
            error = self.lost = Lost("The master broke off in the middle of a change.")
        for ticket in batch:
            ticket.settle(error)

    def _commit(self, batch: Sequence[_Ticket]) -> None:
        if self._must_load:
            self._load()
        self._must_load = True  # until it is known that the commit happened
        now = self._now()
        for ticket in batch:
            ticket.run(self._queue, now)
        changes = self._queue.take(now)
        self._ledger.commit(changes, self._queue.entries, self._table)
        self._must_load = False
        self._publish(changes, now)

    def _publish(self, changes: Changes, now: float) -> None:
        self._view = View.of(self._queue, now)
        if changes.happenings:
            self._tell(changes.happenings)
        if changes.tasks or changes.deal or changes.happenings:
            with self._news:
                self._changes += 1
                self._news.notify_all()

    def _load(self) -> None:
        saved = self._ledger.load(self._table)
        self._began = self._clock() - (saved.head.at if saved else 0.0)
        if saved is None:
            self._queue = TaskQueue.begin(self._plan, self._table, 0.0)
        else:
            self._queue = TaskQueue.resume(self._plan, self._table, saved)
            self._had_trainers = self._had_trainers or any(entry.epoch for entry in saved.entries)
        if self._live is not None:
            self._queue.members(self._live, self._now())

    def _now(self) -> float:
        """The queue's time, to the millisecond."""
        return round(self._clock() - self._began, 3)

    def _wait_for_news(self, seen: int, seconds: float) -> None:
        with self._news:
            if self._changes == seen and not self._closed.is_set():
                self._news.wait(seconds)


class _Ticket:
    """One operation on its way through a commit. Its lock is held until it is settled."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._value: Any = None
        self._error: RegattaError | None = None
        self._settled = threading.Lock()
        self._settled.acquire()

    def run(self, queue: TaskQueue, now: float) -> None:
        self._value = self._operation(queue, now)

    def settle(self, error: RegattaError | None) -> None:
        self._error = error
        self._settled.release()

    def outcome(self) -> Any:
        self._settled.acquire()
        if self._error:
            raise self._error
        return self._value


class MasterSession:
    """Answers one trainer's connection. ``job`` refuses senders of another attempt that say which is theirs.

    Every reply carries the master's ``incarnation``, so that a trainer can tell a replaced master from the one that is.
    """

    def __init__(self, master: Master, job: int = 0, incarnation: int = 0) -> None:
        self._master = master
        self._job = job
        self._incarnation = incarnation

    def allocate(self, header: Header) -> memoryview:
        return refuse_blocks(header)

    def closed(self) -> None:
        """Nothing is kept for a connection: who lives is the coordination store's to say."""

    def answer(self, request: Message, waiting: Callable[[], None]) -> Message:
        head = request.head
        if self._job and head.job and head.job != self._job:
            raise Refused("other_job", "This request belongs to another attempt of a job; its sender should end.")
        if head.op not in _ANSWERS:
            raise Refused("unknown_op", f"The master does not know {head.op.name}; ask a parameter server.")
        try:
            trainer = Trainer(int(request.body["trainer"]), head.incarnation)
            body = _ANSWERS[head.op](self._master, head.op, trainer, request.body, waiting)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused("bad_request", f"The body of {head.op.name} is wrong: {error!r}.") from error
        except (StoreUnavailable, Behind) as error:
            raise Refused("store_unavailable", str(error)) from error
        except Lost as error:
            raise Closed(str(error)) from error  # the trainer looks for the master that is now
        answer = reply(request, body)
        return Message(answer.head._replace(incarnation=self._incarnation), body)


def _get(
    master: Master, op: Op, trainer: Trainer, body: Mapping[str, Any], waiting: Callable[[], None]
) -> dict[str, Any]:
    ended, finished = body["ended"], body.get("done")
    key = Key(int(finished[0]), int(finished[1]), int(finished[2]), trainer) if finished else None
    request, ended = int(body["request"]), None if ended is None else int(ended)
    return answer_to_json(master.get(trainer, request, ended, waiting, key))


def _report(
    master: Master, op: Op, trainer: Trainer, body: Mapping[str, Any], waiting: Callable[[], None]
) -> dict[str, Any]:
    key = Key(int(body["pass_id"]), int(body["task_id"]), int(body["epoch"]), trainer)
    place = body.get("place")
    where = (int(place[0]), int(place[1])) if place else None
    return {"counted": master.report(op, key, str(body.get("why", "")), waiting, where) is Verdict.OK}


def _save_request(
    master: Master, op: Op, trainer: Trainer, body: Mapping[str, Any], waiting: Callable[[], None]
) -> dict[str, Any]:
    return {"granted": master.save_request(trainer, float(body["seconds"]), waiting)}


_ANSWERS = {
    Op.TASK_GET: _get,
    Op.TASK_DONE: _report,
    Op.TASK_FAIL: _report,
    Op.TASK_RELEASE: _report,
    Op.TASK_EXTEND: _report,
    Op.SAVE_REQUEST: _save_request,
}
