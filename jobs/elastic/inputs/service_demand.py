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
class Growths:
    """``_stories``: (moment, wanted) of each change, oldest first, by service."""

    _stories: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _looked: float | None = None

    def learned(self, services: Sequence[Service], now: float) -> list[Service]:
        """The services with their history, that of this moment included. Those of one name are one service, which is
        being replaced by another edition of itself: what counts is how many they are together. One that was not there
        at the last look has come since."""
        wanted: Counter[str] = Counter()
        for service in services:
            if service.key not in NAMELESS:
                wanted[service.key] += service.wanted
        fresh = [] if self._looked is None else [(self._looked, 0)]
        self._stories = {key: _told(self._stories.get(key, fresh), count, now) for key, count in wanted.items()}
        self._looked = now
        return [replace(service, history=tuple(self._stories.get(service.key, ()))) for service in services]


def _told(story: list[tuple[float, int]], wanted: int, now: float) -> list[tuple[float, int]]:
    """With what is wanted now, if that is another number, and without what is old."""
    if not story or story[-1][1] != wanted:
        story = [*story, (now, wanted)]
    recent = [number for number, (at, _) in enumerate(story) if now - at <= REMEMBERED]
    return story[max(0, (recent[0] if recent else len(story)) - 1) :]
