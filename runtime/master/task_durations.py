"""How long tasks take, to distinguish a slow one from a lost one."""

from __future__ import annotations

from typing import NamedTuple

FLOOR_SECONDS = 60.0
_KEPT = 64
_FACTOR = 3.0


class Durations(NamedTuple):
    """The seconds that the last finished tasks took, oldest first, and their 95th percentile; None before any."""

    last: tuple[float, ...] = ()
    usual: float | None = None

    def add(self, seconds: float) -> Durations:
        last = (*self.last[-(_KEPT - 1) :], seconds)
        return Durations(last, sorted(last)[int(0.95 * (len(last) - 1))])

    @property
    def timeout(self) -> float:
        """The timeout of a task: three times the usual duration, but at least a minute."""
        return max(FLOOR_SECONDS, _FACTOR * (self.usual or 0.0))
