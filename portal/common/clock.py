"""The wall clock. This is its only reader: all other code takes ``now`` as an argument.

Leases, timeouts, retention and tokens depend on it. So a jump of the machine's clock is no jump here: the time goes on
as it has passed, and then approaches the machine's clock slowly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

# A larger difference between machine's clock and elapsed time is a jump. Time services correct smaller ones steadily.
JUMP_SECONDS = 2.0
# Seconds by which the time approaches the machine's clock in a second: an hour in ten hours.
RATE = 0.1
# Other systems than Linux count only the time in which they run.
_SINCE_START = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_log = logging.getLogger(__name__)


def _elapsed() -> float:
    """Return the seconds since the start of the machine, including those in which it was suspended."""
    return time.clock_gettime(_SINCE_START)


class SteadyClock:
    """Clock that follows the machine's, and does not jump with it.

    ``wall`` is the machine's clock (unix time), ``elapsed`` one that cannot be set; both in seconds.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _elapsed) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._lock = threading.Lock()
        self._shown, self._at = wall(), elapsed()
        self._jumped = False

    def time(self) -> float:
        """Return the present time (unix time)."""
        with self._lock:
            elapsed, wall = self._elapsed(), self._wall()
            passed = max(0.0, elapsed - self._at)
            ahead = wall - (self._shown + passed)
            if jumped := abs(ahead) > JUMP_SECONDS:
                ahead = max(-RATE * passed, min(RATE * passed, ahead))
            self._shown, self._at = self._shown + passed + ahead, elapsed
            noticed, self._jumped = jumped and not self._jumped, jumped
            behind = wall - self._shown
        if noticed:
            _log.warning("The clock of this machine jumped by %+.0f s. The portal follows it slowly.", behind)
        return self._shown


_CLOCK = SteadyClock()


def now() -> datetime:
    """Return the current time in UTC, with its time zone."""
    return datetime.fromtimestamp(_CLOCK.time(), UTC)
