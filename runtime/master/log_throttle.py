"""Which happenings of the queue are logged. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.master.types import Happening

FREQUENT_SECONDS = 1.0


class Pace:
    """Passes every happening, but a frequent one only if none of its kind was logged in the last second."""

    def __init__(self) -> None:
        self._last_reported: dict[str, float] = {}

    def let_through(self, happenings: Sequence[Happening], now: float) -> Iterator[Happening]:
        """Yield the happenings to log at the time ``now`` (seconds), in order."""
        for happening in happenings:
            if happening.frequent and now - self._last_reported.get(happening.kind, float("-inf")) < FREQUENT_SECONDS:
                continue
            self._last_reported[happening.kind] = now
            yield happening
