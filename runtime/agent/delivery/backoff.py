"""What follows from the portal's answer to any call: a pause, or the end of the attempt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from runtime.agent.delivery.ingest_client import (
    MISSING_SECONDS,
    Answer,
    Failed,
    Missing,
    Persistence,
    Refused,
    Replaced,
    Taken,
)

FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0


class Backoff:
    """Pauses between the calls of one sender.

    Pauses double up to ``LAST_RETRY_SECONDS``, and start over after a call that the portal has answered. Nothing is
    sent once ``over``: the attempt has been replaced, or the time to give up has come.

    ``settled``, ``pause`` and ``until_taken`` are for the thread that makes the calls. ``changed`` ends a pause early
    when the time to give up changes. ``last_call`` is the monotonic time of the last answered call.
    """

    def __init__(
        self, changed: threading.Condition, on_replaced: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """``on_replaced`` is called with the reason when the attempt is over for the portal."""
        self._changed = changed
        self._on_replaced = on_replaced
        self._missing = Persistence(MISSING_SECONDS, clock)
        self._retry = FIRST_RETRY_SECONDS
        self._replaced = False
        self._give_up_at: float | None = None
        self.last_call = time.monotonic()

    def give_up_at(self, deadline: float) -> None:
        """Give up at this time (monotonic). From any thread."""
        with self._changed:
            self._give_up_at = deadline

    def over(self) -> bool:
        late = self._give_up_at is not None and time.monotonic() >= self._give_up_at
        return self._replaced or late

    def settled(self, answer: Answer) -> Answer:
        """Handle the consequences that are the same for every call: back off, or stop because the attempt is over."""
        if isinstance(answer, Missing):
            if self._missing.persists():
                answer = Replaced(answer.why)
        else:
            self._missing.reset()
        if isinstance(answer, Failed | Missing):
            self.pause()
        elif isinstance(answer, Replaced):
            self._replaced = True
            self._on_replaced(answer.why)
        else:
            self._retry = FIRST_RETRY_SECONDS
            # Any call counts as a heartbeat.
            self.last_call = time.monotonic()
        return answer

    def pause(self) -> None:
        """Wait until the next try, or until the sender gives up."""
        until = time.monotonic() + self._retry
        self._retry = min(LAST_RETRY_SECONDS, self._retry * 2)
        with self._changed:
            while not self.over() and (left := until - time.monotonic()) > 0:
                limit = left if self._give_up_at is None else min(left, self._give_up_at - time.monotonic())
                self._changed.wait(max(0.0, limit))

    def until_taken(self, attempt: Callable[[], Answer]) -> bool:
        """Return whether the portal itself accepted or refused it before the sender gave up."""
        while not self.over():
            if isinstance(attempt(), Taken | Refused):
                return True
        return False
