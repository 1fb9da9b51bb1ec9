"""The rules for a request whose try has failed: what the failure means, and when the next try is due. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from runtime.errors import Leaving, Refused, WireError
from runtime.protocol.connection import Closed, DeadlinePassed
from runtime.protocol.frames import BAD_FRAME, SUPERSEDED

# A damaged message is sent again. After this many, the peer is considered incompatible.
DAMAGES = 3
BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)


class Failure(Enum):
    """The meaning of a failed try for the next one."""

    BROKEN = "broken"  # no answer over this connection: close it, and try again over another
    DAMAGED = "damaged"  # bytes were changed on the way: the same, but ``DAMAGES`` times at most
    SILENT = "silent"  # the deadline passed: close the connection, and consider the server lost
    STOPPED = "stopped"  # the wait was ended from this side: raise, and leave the connection as it is
    FINAL = "final"  # the answer to the request: raise, and leave the connection as it is


# The first row that applies.
_RULES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Failure], ...] = (
    ((Closed, ConnectionError), Failure.BROKEN),
    (Leaving, Failure.STOPPED),
    (DeadlinePassed, Failure.SILENT),
    (WireError, Failure.DAMAGED),
)
# A delayed copy of a request may overtake it: then the server has answered on the closed connection.
_REFUSALS = {BAD_FRAME: Failure.DAMAGED, SUPERSEDED: Failure.BROKEN}


def failure_of(error: Exception) -> Failure:
    """The meaning of an error that ended a try."""
    if isinstance(error, Refused):
        return _REFUSALS.get(error.code, Failure.FINAL)
    return next((failure for kinds, failure in _RULES if isinstance(error, kinds)), Failure.FINAL)


class RetryPolicy:
    """The tries of one request, which begin within ``seconds``. The pauses between them grow."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._give_up = clock() + seconds
        self._tries = 0
        self._damages = 0

    def is_incompatible(self, failure: Failure) -> bool:
        """Count a failure; return whether so many messages were damaged that another try is useless."""
        self._damages += failure is Failure.DAMAGED
        return self._damages == DAMAGES

    def next_pause(self) -> float | None:
        """The seconds until the next try; None if it would begin too late."""
        pause = BACK_OFF_SECONDS[min(self._tries, len(BACK_OFF_SECONDS) - 1)]
        self._tries += 1
        return None if self._clock() + pause > self._give_up else pause
