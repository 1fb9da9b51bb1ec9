"""How long tasks take, to tell a slow one from a lost one."""

from __future__ import annotations

from typing import NamedTuple

FLOOR_SECONDS = 60.0
_KEPT = 64
_FACTOR = 3.0


class Durations(NamedTuple):
    """The seconds that the last finished tasks took, oldest first."""

    last: tuple[float, ...] = ()

    def add(self, seconds: float) -> Durations:
        return Durations((*self.last[-(_KEPT - 1) :], seconds))

    @property
    def timeout(self) -> float:
        """Three times the 95th percentile, but at least a minute."""
        if not self.last:
            return FLOOR_SECONDS
        ordered = sorted(self.last)
        return max(FLOOR_SECONDS, _FACTOR * ordered[int(0.95 * (len(ordered) - 1))])
