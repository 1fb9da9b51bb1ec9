"""Discrete events in the order of their times, and the rate of API calls. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class EventLoop:
    """Simulated time and the events to come.

    Invariant: ``now`` never decreases, and events of the same time happen in the order in which they were added.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, happen: Callable[[], None]) -> None:
        """Add an event."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, happen))

    def run(self, until: float, is_done: Callable[[], bool], advance: Callable[[float], None]) -> None:
        """Run the events up to ``until``, or until there is none left or ``is_done``.

        ``advance`` gets the time of each event before it happens.
        """
        while self._events and self._events[0][0] <= until and not is_done():
            self.now, _, happen = heapq.heappop(self._events)
            advance(self.now)
            happen()


class CallLimiter:
    """A client of the API that makes a limited number of calls per second, one after the other."""

    def __init__(self, loop: EventLoop, per_second: float) -> None:
        self._loop, self._per_second = loop, per_second
        self._last = 0.0

    def next_call(self) -> float:
        """Return the time at which a further call is made."""
        self._last = max(self._last, self._loop.now) + 1 / self._per_second
        return self._last
