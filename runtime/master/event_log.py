"""Which happenings of the queue are logged, and those of an outage of the store. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.coordination.base import StoreUnavailable
from runtime.master.types import Happening
from runtime.messages import training as messages

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


class StoreOutage:
    """Whether the coordination store answers, from one report of its end to the next. Times are seconds."""

    def __init__(self) -> None:
        self._since: float | None = None  # when the store first did not answer, if that was reported

    def begin(self, why: StoreUnavailable, now: float) -> Sequence[Happening]:
        """Record that the store did not answer. Returns what to report: the first failure of an outage."""
        if self._since is not None:
            return ()
        self._since = now
        return (Happening("store", messages.STORE_AWAY_TRAINING_CONTINUES(why=why), notable=True),)

    def end(self, now: float) -> Sequence[Happening]:
        """Record that the store answered. Returns what to report: the end of an outage."""
        if self._since is None:
            return ()
        away, self._since = now - self._since, None
        text = messages.STORE_RESPONDS_AGAIN(seconds=f"{away:.0f}")
        return (Happening("store", text, notable=True),)
