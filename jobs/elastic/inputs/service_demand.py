"""Recent demand of services for replicas, from which a policy estimates their next growth. Pure.

The history is in the memory of the leading controller and starts empty after a change of the leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jobs.elastic.inputs.cluster_snapshot import NAMELESS
from jobs.elastic.policy.model import Service

# Seconds for which changes are kept. The last change before that stays as well, because the next growth starts there.
REMEMBERED = 600.0


@dataclass
class DemandHistory:
    """History of the demand. ``_histories``: by service, the (time, wanted) of each change, oldest first."""

    _histories: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _last_update: float | None = None

    def with_history(self, services: Sequence[Service], now: float) -> list[Service]:
        """Return the services with their history, including the present demand.

        Services with the same key are versions of one service during a rollout, and their demands are added. A service
        that was absent in the last update has grown from zero since.
        """
        wanted: Counter[str] = Counter()
        for service in services:
            if service.key not in NAMELESS:
                wanted[service.key] += service.wanted
        fresh = [] if self._last_update is None else [(self._last_update, 0)]
        self._histories = {key: _updated(self._histories.get(key, fresh), count, now) for key, count in wanted.items()}
        self._last_update = now
        return [replace(service, history=tuple(self._histories.get(service.key, ()))) for service in services]


def _updated(history: list[tuple[float, int]], wanted: int, now: float) -> list[tuple[float, int]]:
    """Return the history with the present demand, if it differs, and without old changes."""
    if not history or history[-1][1] != wanted:
        history = [*history, (now, wanted)]
    recent = [number for number, (at, _) in enumerate(history) if now - at <= REMEMBERED]
    return history[max(0, (recent[0] if recent else len(history)) - 1) :]
