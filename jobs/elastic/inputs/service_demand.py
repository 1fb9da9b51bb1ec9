"""How many replicas services wanted of late, from which is learned how much they may soon want more. Pure.

It is remembered by who looks: after a change of the leader it is learned anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jobs.elastic.inputs.cluster_snapshot import NAMELESS
from jobs.elastic.policy.model import Service

# Changes that are older say nothing any more. The last before that stays: the next rises from there.
REMEMBERED = 600.0


@dataclass
class DemandHistory:
    """``_stories``: (moment, wanted) of each change, oldest first, by service."""

    _histories: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _last_update: float | None = None

    def with_history(self, services: Sequence[Service], now: float) -> list[Service]:
        """The services with their history, that of this moment included. Those of one name are one service, which is
        being replaced by another edition of itself: what counts is how many they are together. One that was not there
        at the last look has come since."""
        wanted: Counter[str] = Counter()
        for service in services:
            if service.key not in NAMELESS:
                wanted[service.key] += service.wanted
        fresh = [] if self._last_update is None else [(self._last_update, 0)]
        self._histories = {key: _updated(self._histories.get(key, fresh), count, now) for key, count in wanted.items()}
        self._last_update = now
        return [replace(service, history=tuple(self._histories.get(service.key, ()))) for service in services]


def _updated(history: list[tuple[float, int]], wanted: int, now: float) -> list[tuple[float, int]]:
    """With what is wanted now, if that is another number, and without what is old."""
    if not history or history[-1][1] != wanted:
        history = [*history, (now, wanted)]
    recent = [number for number, (at, _) in enumerate(history) if now - at <= REMEMBERED]
    return history[max(0, (recent[0] if recent else len(history)) - 1) :]
