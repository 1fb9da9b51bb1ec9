"""Requests on their way into a commit: pending for the next one, or in flight in the current one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.master.group_commit import Ticket

# The interval of the wait replies to a request that takes longer than usual.
WAITING_SECONDS = 1.0
# The minimum time between the starts of two commits: all requests in between form one transaction.
COMMIT_SECONDS = 0.0025
# A notice is committed together with requests, or after this long.
NOTICE_SECONDS = 0.05
# How often a batch is retried while the store does not answer.
STORE_PAUSE_SECONDS = 0.1


class CommitSchedule:
    """The pending tickets, the batch in flight, and the time of the next commit.

    A ticket is either pending or in flight until ``finish`` or ``postpone`` returns it: it is never lost and never in
    two batches. At most one batch is in flight, and two batches start at least ``COMMIT_SECONDS`` apart.

    ``now`` is monotonic time in seconds. Tickets are not settled here. For one thread.
    """

    def __init__(self, patience: float) -> None:
        """``patience`` is how many seconds a ticket is retried, counted from its request."""
        self._patience = patience
        self._pending: list[Ticket] = []
        self._in_flight: list[Ticket] = []
        self._next_start = self._next_wait_reply = 0.0

    def add(self, ticket: Ticket) -> None:
        """Make a ticket pending, after those that are."""
        self._pending.append(ticket)

    @property
    def start_at(self) -> float | None:
        """When the next batch is to start; None while nothing is pending or a batch is in flight."""
        if self._in_flight or not self._pending:
            return None
        if all(ticket.notice for ticket in self._pending):
            return max(self._next_start, self._pending[0].since + NOTICE_SECONDS)
        return self._next_start

    @property
    def empty(self) -> bool:
        """Whether no ticket is pending or in flight."""
        return not (self._pending or self._in_flight)

    def unfinished(self) -> tuple[Ticket, ...]:
        """Return the tickets in flight and then the pending ones."""
        return (*self._in_flight, *self._pending)

    def start(self, now: float, also: Iterable[Ticket] = ()) -> list[Ticket]:
        """Put all pending tickets in flight, ``also`` after them, and return that batch."""
        self._next_start = now + COMMIT_SECONDS
        self._in_flight, self._pending = [*self._pending, *also], []
        return self._in_flight

    def finish(self) -> list[Ticket]:
        """End the batch in flight and return it."""
        batch, self._in_flight = self._in_flight, []
        return batch

    def postpone(self, now: float) -> list[Ticket]:
        """Make the batch in flight pending again, before all others, to start after a pause.

        Returns the tickets whose patience is used up; they are no longer scheduled.
        """
        batch = self.finish()
        self._next_start = now + STORE_PAUSE_SECONDS
        expired = [ticket for ticket in batch if now >= ticket.since + self._patience]
        self._pending = [ticket for ticket in batch if ticket not in expired] + self._pending
        return expired

    def send_wait_replies(self, now: float) -> None:
        """Send a wait reply for each ticket that takes longer than usual, at most once per ``WAITING_SECONDS``."""
        if now < self._next_wait_reply:
            return
        self._next_wait_reply = now + WAITING_SECONDS
        for ticket in self.unfinished():
            if ticket.since + WAITING_SECONDS <= now:
                ticket.waiting()
