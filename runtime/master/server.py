"""The running master: it receives requests, commits the changes of all that arrived, and sends answers.

One thread serves the connections, another the queue and the store: during a commit the next requests accumulate.
Nothing is answered before it is committed. A waiting trainer is answered as soon as there is a result for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue
from typing import Any

from runtime.coordination.base import Clock, StoreUnavailable
from runtime.errors import Lost, Refused, RegattaError
from runtime.master import handlers
from runtime.master.group_commit import Commits, Committed, Operation, Ticket, View
from runtime.master.listener import Call, Reception
from runtime.master.messages import Trainer, Wait
from runtime.master.queue_store import Behind, Ledger
from runtime.master.task_table import TaskTable
from runtime.master.types import Happening, Plan
from runtime.messages import training as messages

# A waiting trainer is answered when there is a result, or after this long: well before it considers the master lost.
HOLD_SECONDS = 2.0
# How long a request is retried while the store does not answer, and how often.
STORE_PATIENCE_SECONDS = 30.0
STORE_PAUSE_SECONDS = 0.1
# The interval of the wait replies to a request that takes longer than usual.
WAITING_SECONDS = 1.0
# The minimum time between the starts of two commits: all requests in between form one transaction.
COMMIT_SECONDS = 0.0025
# A notice is committed together with requests, or after this long.
NOTICE_SECONDS = 0.05
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
        self._patience = patience
        self._inbox: SimpleQueue[Ticket] = SimpleQueue()
        self._due: list[Ticket] = []  # for the next commit
        self._committing: list[Ticket] = []  # in the current commit
        self._batches: SimpleQueue[list[Ticket] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Committed | RegattaError] = SimpleQueue()
        self._held: list[tuple[float, Call]] = []  # waiting calls, and until when they are held
        self._next_commit = self._next_wait_reply = 0.0
        self._away_since: float | None = None  # when the store first did not answer, if that was reported
        self._view = View()
        self._had_trainers = False
        self._ended = threading.Event()  # the job is over, or this master is lost or closed
        self._closing = False
        self.lost: RegattaError | None = None
        threading.Thread(target=self._commit_all, name="commits", daemon=True).start()
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
                self._turn(self._pause())
            self._finish_pending()
        except Exception:
            log.exception("The master broke off.")
            self.lost = Lost(messages.MASTER_RESPONSE_FAILED())
            self._ended.set()
        self._batches.put(None)

    def _pause(self) -> float:
        """How many seconds there is nothing to do without a request."""
        now = time.monotonic()
        if self._due and not self._committing:
            return max(0.0, self._due_at() - now)
        return min([_LOOK_SECONDS, *(max(0.0, until - now) for until, _call in self._held)])

    def _turn(self, seconds: float) -> None:
        notices = self._notices()
        for call in self._reception.poll(0.0 if notices else seconds):
            self._take(call, time.monotonic() + HOLD_SECONDS)
        self._due += notices
        if not self._outcomes.empty():
            self._conclude(self._outcomes.get())
        now = time.monotonic()
        self._settle_waiting(now)
        if self._due and not self._committing and now >= self._due_at():
            self._start_commit(now)

    def _notices(self) -> list[Ticket]:
        """The changes that the process has requested until now. Messages that trainers sent earlier are handled first:
        a lost trainer may have sent a notice of its current task.
        """
        return [self._inbox.get() for _ in range(self._inbox.qsize())]

    def _due_at(self) -> float:
        """When the next commit is to begin."""
        if all(ticket.notice for ticket in self._due):
            return max(self._next_commit, self._due[0].since + NOTICE_SECONDS)
        return self._next_commit

    def _settle_waiting(self, now: float) -> None:
        """Answer calls that were held for too long; send wait replies to those that wait for the store."""
        late = [call for until, call in self._held if until <= now]
        if late:
            self._held = [one for one in self._held if one[0] > now]
        for call in late:
            self._end_wait(call)
        if now >= self._next_wait_reply:
            self._next_wait_reply = now + WAITING_SECONDS
            for ticket in (*self._committing, *self._due):
                if ticket.since + WAITING_SECONDS <= now:
                    ticket.waiting()

    def _finish_pending(self) -> None:
        """Commit the pending requests if the store answers in time, and then answer all waiting calls."""
        give_up = time.monotonic() + _LEAVE_SECONDS
        while (self._due or self._committing) and time.monotonic() < give_up and not self.lost:
            self._turn(STORE_PAUSE_SECONDS)
        for ticket in (*self._committing, *self._due):
            ticket.settle(StoreUnavailable(_ENDING))
        for _until, call in self._held:
            self._end_wait(call)

    def _take(self, call: Call, hold_until: float) -> None:
        """Queue the call for the next commit."""
        try:
            asked = handlers.operation(call.request)
        except Refused as refused:
            self._reception.refuse(call, refused)
            return

        self._due.append(self._ticket(call, asked, hold_until))

    def _ticket(self, call: Call, asked: Operation, hold_until: float) -> Ticket:
        now = time.monotonic()
        if handlers.is_notice(call.request):
            return Ticket(asked, now, lambda ticket: None, notice=True)

        def settled(ticket: Ticket) -> None:
            self._answer(call, ticket, hold_until)

        return Ticket(asked, now, settled, lambda: self._reception.ask_to_wait(call))

    def _answer(self, call: Call, ticket: Ticket, hold_until: float) -> None:
        error = ticket.error
        if isinstance(error, StoreUnavailable | Behind):
            self._reception.refuse(call, Refused("store_unavailable", str(error)))
        elif isinstance(error, Refused):
            self._reception.refuse(call, error)
        elif error:
            self._reception.hang_up(call.caller)  # the trainer looks for the current master
        elif isinstance(ticket.value, Wait) and not self._closing:
            self._held.append((hold_until, call))
        else:
            self._reception.answer(call, handlers.reply(call.request, ticket.value))

    def _end_wait(self, call: Call) -> None:
        self._reception.answer(call, handlers.reply(call.request, Wait(0.0)))

    # --- Commits: started and finished by the thread of the requests, made by the other one ---------------------------
    def _start_commit(self, now: float) -> None:
        self._next_commit = now + COMMIT_SECONDS
        held, self._held = self._held, []
        again = [self._ticket(call, handlers.operation(call.request), until) for until, call in held]
        self._committing, self._due = self._due + again, []
        self._batches.put(self._committing)

    def _commit_all(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._outcomes.put(self._outcome(batch))
            self._reception.wake()

    def _outcome(self, batch: Sequence[Ticket]) -> Committed | RegattaError:
        try:
            return self._commits.commit(batch)
        except RegattaError as error:
            return error
        except Exception:
            log.exception("A change broke off.")
            return Lost(messages.MASTER_CHANGE_FAILED())

    def _conclude(self, outcome: Committed | RegattaError) -> None:
        batch, self._committing = self._committing, []
        if isinstance(outcome, Committed):
            self._publish(batch, outcome)
        elif isinstance(outcome, StoreUnavailable | Behind):
            self._put_off(batch, outcome)
        else:
            self._break_off(batch, outcome)

    def _publish(self, batch: Sequence[Ticket], committed: Committed) -> None:
        changes, self._view = committed
        if self._away_since is not None:
            away = time.monotonic() - self._away_since
            self._away_since = None
            text = messages.STORE_RESPONDS_AGAIN(seconds=f"{away:.0f}")
            self._report([Happening("store", text, notable=True)])
        if changes.happenings:
            self._report(changes.happenings)
        if self.over:
            self._ended.set()
        for ticket in batch:
            ticket.settle()

    def _put_off(self, batch: Sequence[Ticket], why: RegattaError) -> None:
        """Try the same batch again in a moment, as if it had not been tried."""
        now = time.monotonic()
        if self._away_since is None and isinstance(why, StoreUnavailable):
            self._away_since = now
            self._report([Happening("store", messages.STORE_AWAY_TRAINING_CONTINUES(why=why), notable=True)])
        self._next_commit = now + STORE_PAUSE_SECONDS
        again = [ticket for ticket in batch if now < ticket.since + self._patience]
        self._due = again + self._due
        for ticket in batch:
            if ticket not in again:
                ticket.settle(why)

    def _break_off(self, batch: Sequence[Ticket], why: RegattaError) -> None:
        self.lost = why
        for ticket in batch:
            ticket.settle(why)
        self._ended.set()


_ENDING = messages.MASTER_ENDING()
