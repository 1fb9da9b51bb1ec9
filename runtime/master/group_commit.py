"""The queue with its ledger and its clock: several changes become one commit, or none of them takes effect.

The queue's time is the time during which masters have served. After a takeover it continues from the last commit, so
that no deadline passes while no trainer could be reached.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from runtime.coordination.base import Clock
from runtime.errors import Lost, Refused, RegattaError
from runtime.master.messages import Trainer, Wait
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.task_table import TaskTable
from runtime.master.types import Changes, Plan
from runtime.messages import training as messages

log = logging.getLogger("master")

# An operation on the queue at a time. May raise Refused instead of returning a value.
Operation = Callable[[TaskQueue, float], Any]


class Ticket:
    """One operation on its way through a commit.

    ``settled`` is called once, when ``value`` or ``error`` is set; ``waiting`` is called repeatedly while the store
    does not answer. ``since`` is the monotonic time of the request. Nothing waits for the outcome of a ``notice``.
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
    """What may be read of the queue at any time, as of the last commit."""

    over: bool = False
    failed: str = ""
    trainers: bool = False
    deadline: float | None = None

    @classmethod
    def of(cls, queue: TaskQueue, now: float) -> View:
        return cls(queue.finished or bool(queue.failed), queue.failed, bool(queue.live), queue.next_deadline(now))


class Committed(NamedTuple):
    """What was committed, and the view of the queue after it."""

    changes: Changes
    view: View


class Commits:
    """Commits of the queue, for one thread.

    ``live`` are the live trainers, None until they are reported. ``_began`` is the clock's time at which the queue's
    time began. ``handed_out`` is true if the queue had handed out tasks when it was read.
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
        """Run the tickets' operations and commit their changes; the tickets are not settled yet.

        Raises what the ledger raises. The next call then reads the queue from the store again.
        """
        if self._must_load:
            self._load()
        self._must_load = True  # until the commit is known to have happened
        now = self.now()
        for ticket in tickets:
            ticket.run(self._queue, now)
        for ticket in tickets:
            if isinstance(ticket.value, Wait):  # another ticket may have brought what it waits for
                ticket.run(self._queue, now)
        changes = self._queue.take(now)
        self._ledger.commit(changes, self._queue.entries, self._table)
        self._must_load = False
        return Committed(changes, View.of(self._queue, now))

    def now(self) -> float:
        """The queue's time in seconds, rounded to milliseconds."""
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


class CommitThread:
    """A thread that makes the commits, so that the caller can receive requests meanwhile.

    Each submitted batch gets one outcome, in the order of submission; ``wake`` is called after each. A change that
    broke off is an outcome like a failed commit. All methods are for one thread.
    """

    def __init__(self, commits: Commits, wake: Callable[[], object]) -> None:
        self._commits = commits
        self._wake = wake
        self._batches: SimpleQueue[Sequence[Ticket] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Committed | RegattaError] = SimpleQueue()
        threading.Thread(target=self._commit_all, name="commits", daemon=True).start()

    def submit(self, batch: Sequence[Ticket]) -> None:
        """Commit the batch; its tickets belong to the thread until the outcome."""
        self._batches.put(batch)

    def outcome(self) -> Committed | RegattaError | None:
        """Return the next outcome; None if there is none yet."""
        return None if self._outcomes.empty() else self._outcomes.get()

    def stop(self) -> None:
        """End the thread after the batches submitted so far. Returns at once."""
        self._batches.put(None)

    def _commit_all(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._outcomes.put(self._commit(batch))
            self._wake()

    def _commit(self, batch: Sequence[Ticket]) -> Committed | RegattaError:
        try:
            return self._commits.commit(batch)
        except RegattaError as error:
            return error
        except Exception:
            log.exception("A change broke off.")
            return Lost(messages.MASTER_CHANGE_FAILED())
