"""Calls of trainers as tickets, and their answers; a call whose answer is to wait is held."""

from __future__ import annotations

import time

from runtime.coordination.base import StoreUnavailable
from runtime.errors import Refused
from runtime.master import handlers
from runtime.master.group_commit import Operation, Ticket
from runtime.master.listener import Call, Reception
from runtime.master.messages import Wait
from runtime.master.queue_store import Behind

# A waiting trainer is answered when there is a result, or after this long: well before it considers the master lost.
HOLD_SECONDS = 2.0


class Responder:
    """Answers calls through the reception.

    A call is answered once: with its result, with a refusal, or by hanging up. Notices get no answer. A call whose
    result is ``Wait`` is held instead. A held call returns as a ticket of the next commit, and is answered with
    ``Wait`` after ``HOLD_SECONDS``, counted from its receipt.

    All methods but ``stop_holding`` are for the thread of the requests.
    """

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._held: list[tuple[float, Call]] = []  # waiting calls, and until when they are held
        self._holds = True

    def ticket(self, call: Call) -> Ticket | None:
        """Return a received call as a ticket, or None after refusing it."""
        try:
            operation = handlers.operation(call.request)
        except Refused as refused:
            self._reception.refuse(call, refused)
            return None
        now = time.monotonic()
        return self._ticket(call, operation, now + HOLD_SECONDS, now)

    def next_end(self) -> float | None:
        """Return when the first held call is answered with ``Wait``; None if none is held."""
        return min((until for until, _call in self._held), default=None)

    def retry_held(self) -> list[Ticket]:
        """Return the held calls as tickets again; none is held afterwards."""
        held, self._held = self._held, []
        now = time.monotonic()
        return [self._ticket(call, handlers.operation(call.request), until, now) for until, call in held]

    def end_held(self, now: float) -> None:
        """Answer the calls that are held for too long at the monotonic time ``now``."""
        late = [call for until, call in self._held if until <= now]
        if late:
            self._held = [one for one in self._held if one[0] > now]
        for call in late:
            self._reception.answer(call, handlers.reply(call.request, Wait(0.0)))

    def stop_holding(self) -> None:
        """Answer calls from now on at once, also with ``Wait``. Callable from any thread."""
        self._holds = False

    def _ticket(self, call: Call, operation: Operation, hold_until: float, now: float) -> Ticket:
        if handlers.is_notice(call.request):
            return Ticket(operation, now, lambda ticket: None, notice=True)

        def settled(ticket: Ticket) -> None:
            self._answer(call, ticket, hold_until)

        return Ticket(operation, now, settled, lambda: self._reception.ask_to_wait(call))

    def _answer(self, call: Call, ticket: Ticket, hold_until: float) -> None:
        error = ticket.error
        if isinstance(error, StoreUnavailable | Behind):
            self._reception.refuse(call, Refused("store_unavailable", str(error)))
        elif isinstance(error, Refused):
            self._reception.refuse(call, error)
        elif error:
            self._reception.hang_up(call.caller)  # the trainer looks for the current master
        elif isinstance(ticket.value, Wait) and self._holds:
            self._held.append((hold_until, call))
        else:
            self._reception.answer(call, handlers.reply(call.request, ticket.value))
