"""How much of what happens in the queue is said in the log. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.master.types import Happening

FREQUENT_SECONDS = 1.0


class Pace:
    """Lets everything through, but a frequent happening only when none of its kind was told in the last second."""

    def __init__(self) -> None:
        self._last_reported: dict[str, float] = {}

    def let_through(self, happenings: Sequence[Happening], now: float) -> Iterator[Happening]:
        """Those of the happenings of the moment ``now`` (seconds) that are to be told, in order."""
        for happening in happenings:
            if happening.frequent and now - self._last_reported.get(happening.kind, float("-inf")) < FREQUENT_SECONDS:
                continue
            self._last_reported[happening.kind] = now
            yield happening
