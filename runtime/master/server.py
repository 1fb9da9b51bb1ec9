"""The running master: it receives requests, commits the changes of all that arrived, and sends answers.

One thread serves the connections, another the queue and the store: during a commit the next requests accumulate.
Nothing is answered before it is committed. A waiting trainer is answered as soon as there is a result for it.

The life cycle of a request, with the object that has it in each state::

    received    Reception.poll                a call; an invalid one is refused
       |        Responder.ticket
    pending     CommitSchedule                for the next commit    <---------------------+
       |        CommitSchedule.start                                 <----------+          |
    in flight   CommitThread                  in the current commit             |          |
       |                                                                        |          |
       +-- committed -- Ticket.settle --+-- replied   the result                |          |
       |                                +-- held      to wait: the next commit -+          |
       |                                      |       may bring a task                     |
       |                                      +-- replied   to wait, after HOLD_SECONDS    |
       +-- retried      the store did not answer, within the patience ---------------------+
       +-- failed       the patience is used up, or the master is lost: refused or disconnected

Operations of the process itself (``Master.change``) are tickets too, but are never held.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue
from typing import Any

from runtime.coordination.base import Clock, StoreUnavailable
from runtime.errors import Lost, RegattaError
from runtime.master.commit_schedule import STORE_PAUSE_SECONDS, CommitSchedule
from runtime.master.event_log import StoreOutage
from runtime.master.group_commit import Commits, Committed, CommitThread, Operation, Ticket, View
from runtime.master.listener import Reception
from runtime.master.messages import Trainer
from runtime.master.queue_store import Behind, Ledger
from runtime.master.responder import Responder
from runtime.master.task_table import TaskTable
from runtime.master.types import Happening, Plan
from runtime.messages import training as messages

# How long a request is retried while the store does not answer.
STORE_PATIENCE_SECONDS = 30.0
# Deadlines are checked at least this often.
_LOOK_SECONDS = 1.0
# A store that does not answer delays the end by at most this long.
_LEAVE_SECONDS = 2.0

log = logging.getLogger("master")


class Master:
    """The queue on the network.

    ``change`` and the methods that call it may be called from any thread but the master's own two, all others from any
    thread. ``report`` is called with what happened, once it is committed. Errors of the ledger (``Lost``) go to the
    caller and stay in ``lost``. Requests are retried for ``patience`` seconds while the store does not answer.
    """

    def __init__(
        self,
        plan: Plan,
        table: TaskTable,
        ledger: Ledger,
        report: Callable[[Sequence[Happening]], object],
        reception: Reception,
        *,
        clock: Clock = time.monotonic,
        patience: float = STORE_PATIENCE_SECONDS,
    ) -> None:
        """Raises what the first commit raises: UsageError if the store holds the state of another dataset."""
        self._commits = Commits(plan, table, ledger, clock)
        self._report = report
        self._reception = reception
        self._inbox: SimpleQueue[Ticket] = SimpleQueue()
        self._schedule = CommitSchedule(patience)
        self._responder = Responder(reception)
        self._outage = StoreOutage()
        self._view = View()
        self._had_trainers = False
        self._ended = threading.Event()  # the job is over, or this master is lost or closed
        self._closing = False
        self.lost: RegattaError | None = None
        self._commit_thread = CommitThread(self._commits, reception.wake)
        self._thread = threading.Thread(target=self._serve, name="requests", daemon=True)
        self._thread.start()
        try:
            self.change(lambda queue, now: None)
        except RegattaError:
            self.close()
            raise

    # --- For the process ----------------------------------------------------------------------------------------------
    def change(self, operation: Operation) -> Any:
        """Run ``operation`` on the queue, commit, and return its result.

        Raises StoreUnavailable if the store has not answered for the whole patience, and what the operation raises.
        """
        done = threading.Semaphore(0)
        ticket = Ticket(operation, time.monotonic(), lambda _: done.release())
        self._inbox.put(ticket)
        self._reception.wake()
        while not done.acquire(timeout=_LOOK_SECONDS):
            if not self._thread.is_alive():
                raise StoreUnavailable(_ENDING)
        if ticket.error:
            raise ticket.error
        return ticket.value

    def members(self, live: Collection[Trainer]) -> None:
        """Set the live trainers. An error goes to ``lost``, because the caller could do nothing about it."""
        trainers = self._commits.live = tuple(sorted(live))
        self._had_trainers = self._had_trainers or bool(live)
        try:
            self.change(lambda queue, now: queue.members(trainers, now))
        except RegattaError as error:
            self.lost = self.lost or error
            self._ended.set()

    def run(self, stop: Callable[[], bool]) -> None:
        """Watch the deadlines until ``stop``, until the job is over and its trainers have left, or until ``lost``."""
        while not (stop() or self.over or self.lost):
            due = self._view.deadline
            left = _LOOK_SECONDS if due is None else min(_LOOK_SECONDS, max(0.0, due - self._commits.now()))
            self._ended.wait(left)
            self._ended.clear()
            if due is not None and self._commits.now() >= due:
                self.change(lambda queue, now: queue.tick(now))

    def close(self) -> None:
        """Commit the pending requests, answer the waiting ones, and stop answering."""
        self._responder.stop_holding()
        self._closing = True
        self.wake()
        self._thread.join()

    def wake(self) -> None:
        """Make ``run`` check its conditions again."""
        self._ended.set()
        self._reception.wake()

    @property
    def over(self) -> bool:
        """Whether the job is done or failed, and all its trainers have been answered and have left."""
        had_trainers = self._had_trainers or self._commits.handed_out
        return self._view.over and had_trainers and not self._view.trainers

    @property
    def done(self) -> bool:
        """Whether all passes have ended."""
        return self._view.over and not self._view.failed

    @property
    def failed(self) -> str:
        """Why the job cannot continue; empty if it can."""
        return self._view.failed

    # --- Requests: one thread -----------------------------------------------------------------------------------------
    def _serve(self) -> None:
        try:
            while not self._closing:
                self._serve_once(self._idle_seconds())
            self._finish_pending()
        except Exception:
            log.exception("The master broke off.")
            self.lost = Lost(messages.MASTER_RESPONSE_FAILED())
            self._ended.set()
        self._commit_thread.stop()

    def _idle_seconds(self) -> float:
        """How many seconds there is nothing to do without a request."""
        now, start_at = time.monotonic(), self._schedule.start_at
        if start_at is not None:
            return max(0.0, start_at - now)
        end_at = self._responder.next_end()
        return _LOOK_SECONDS if end_at is None else min(_LOOK_SECONDS, max(0.0, end_at - now))

    def _serve_once(self, seconds: float) -> None:
        """Receive requests for up to ``seconds``, conclude a commit that has ended, and start the next if it is due."""
        changes = self._take_changes()
        for call in self._reception.poll(0.0 if changes else seconds):
            if (ticket := self._responder.ticket(call)) is not None:
                self._schedule.add(ticket)
        for ticket in changes:
            self._schedule.add(ticket)
        if (outcome := self._commit_thread.outcome()) is not None:
            self._conclude(outcome)
        now = time.monotonic()
        self._responder.end_held(now)
        self._schedule.send_wait_replies(now)
        start_at = self._schedule.start_at
        if start_at is not None and now >= start_at:
            self._commit_thread.submit(self._schedule.start(now, self._responder.retry_held()))

    def _take_changes(self) -> list[Ticket]:
        """The changes that the process has requested until now. Messages that trainers sent earlier are handled first:
        a lost trainer may have sent a notice of its current task.
        """
        return [self._inbox.get() for _ in range(self._inbox.qsize())]

    def _finish_pending(self) -> None:
        """Commit the pending requests if the store answers in time, and then answer all waiting calls."""
        give_up = time.monotonic() + _LEAVE_SECONDS
        while not self._schedule.empty and time.monotonic() < give_up and not self.lost:
            self._serve_once(STORE_PAUSE_SECONDS)
        for ticket in self._schedule.unfinished():
            ticket.settle(StoreUnavailable(_ENDING))
        self._responder.end_held(math.inf)

    # --- Outcomes of commits: the same thread -------------------------------------------------------------------------
    def _conclude(self, outcome: Committed | RegattaError) -> None:
        if isinstance(outcome, Committed):
            self._publish(outcome)
        elif isinstance(outcome, StoreUnavailable | Behind):
            self._retry_commit(outcome)
        else:
            self._fail_commit(outcome)

    def _publish(self, committed: Committed) -> None:
        """Report what happened, and settle the tickets of the commit."""
        batch = self._schedule.finish()
        changes, self._view = committed
        if restored := self._outage.end(time.monotonic()):
            self._report(restored)
        if changes.happenings:
            self._report(changes.happenings)
        if self.over:
            self._ended.set()
        for ticket in batch:
            ticket.settle()

    def _retry_commit(self, why: RegattaError) -> None:
        """Try the same batch again in a moment, as if it had not been tried."""
        now = time.monotonic()
        if isinstance(why, StoreUnavailable) and (begun := self._outage.begin(why, now)):
            self._report(begun)
        for ticket in self._schedule.postpone(now):
            ticket.settle(why)

    def _fail_commit(self, why: RegattaError) -> None:
        self.lost = why
        for ticket in self._schedule.finish():
            ticket.settle(why)
        self._ended.set()


_ENDING = messages.MASTER_ENDING()
