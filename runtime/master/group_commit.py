"""The queue with its ledger and its clock: several changes at once become one commit, or nothing.

The queue's time is the time that masters have served: it goes on from the last commit when another master takes over,
so that no deadline passes while nobody could have been told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runtime.coordination.base import Clock
from runtime.errors import Refused, RegattaError
from runtime.master.messages import Trainer, Wait
from runtime.master.queue_store import Ledger
from runtime.master.task_queue import TaskQueue
from runtime.master.task_table import TaskTable
from runtime.master.types import Changes, Plan

# Asks something of the queue at a time. May raise Refused instead of giving a value.
Operation = Callable[[TaskQueue, float], Any]


class Ticket:
    """One operation on its way through a commit.

    ``settled`` is called once, when ``value`` or ``error`` is there; ``waiting`` now and then while the store does not
    answer. ``since`` is the monotonic time at which it was asked. Nobody waits for the outcome of a ``notice``.
    """

    __slots__ = ("_operation", "_settled", "error", "notice", "since", "value", "waiting")

    def __init__(
        self,
        operation: Operation,
        since: float,
        settled: Callable[[Ticket], None],
        waiting: Callable[[], None] = lambda: None,
        notice: bool = False,
    ) -> None:
        self._operation = operation
        self.notice = notice
        self._settled = settled
        self.since = since
        self.waiting = waiting
        self.value: Any = None
        self.error: RegattaError | None = None

    def run(self, queue: TaskQueue, now: float) -> None:
        self.error = None
        try:
            self.value = self._operation(queue, now)
        except Refused as refused:
            self.error = refused

    def settle(self, error: RegattaError | None = None) -> None:
        self.error = error or self.error
        self._settled(self)


class View(NamedTuple):
    """What may be read of the queue at any time: as of the last commit."""

    over: bool = False
    failed: str = ""
    trainers: bool = False
    deadline: float | None = None

    @classmethod
    def of(cls, queue: TaskQueue, now: float) -> View:
        return cls(queue.finished or bool(queue.failed), queue.failed, bool(queue.live), queue.next_deadline(now))


class Committed(NamedTuple):
    """What was committed, and how the queue looks now."""

    changes: Changes
    view: View


class Commits:
    """For one thread. ``live`` are the trainers that live now, None until somebody says; ``began`` is when, on the
    clock, the queue's time began; ``handed_out`` says that the queue had handed out tasks when it was read.
    """

    def __init__(self, plan: Plan, table: TaskTable, ledger: Ledger, clock: Clock) -> None:
        self._plan = plan
        self._table = table
        self._ledger = ledger
        self._clock = clock
        self._queue = TaskQueue.begin(plan, table, 0.0)
        self._must_load = True
        self._began = clock()
        self.live: tuple[Trainer, ...] | None = None
        self.handed_out = False

    def commit(self, tickets: Sequence[Ticket]) -> Committed:
        """Run the tickets' operations and commit what they changed; they are not settled yet.

        Raises what the ledger raises, and then the next call reads the queue anew from the store.
        """
        if self._must_load:
            self._load()
        self._must_load = True  # until it is known that the commit happened
        now = self.now()
        for ticket in tickets:
            ticket.run(self._queue, now)
        for ticket in tickets:
            if isinstance(ticket.value, Wait):  # it may have been for what another ticket has brought
                ticket.run(self._queue, now)
        changes = self._queue.take(now)
        self._ledger.commit(changes, self._queue.entries, self._table)
        self._must_load = False
        return Committed(changes, View.of(self._queue, now))

    def now(self) -> float:
        """The queue's time, to the millisecond."""
        return round(self._clock() - self._began, 3)

    def _load(self) -> None:
        saved = self._ledger.load(self._table)
        self._began = self._clock() - (saved.head.at if saved else 0.0)
        if saved is None:
            self._queue = TaskQueue.begin(self._plan, self._table, 0.0)
        else:
            self._queue = TaskQueue.resume(self._plan, self._table, saved)
            self.handed_out = any(entry.epoch for entry in saved.entries)
        if self.live is not None:
            self._queue.members(self.live, self.now())
