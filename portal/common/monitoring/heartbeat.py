"""Heartbeats: whether the loop of a process still turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Kubernetes restarts a worker or sweep whose heartbeat is older. One step of a sweep may wait for a slow storage.
LIMIT_SECONDS = 300.0

Clock = Callable[[], float]


@dataclass(frozen=True)
class Health:
    """Whether a process is alive, with the age of its heartbeat in seconds."""

    alive: bool
    age: float


def health(last: float, now: float, limit: float) -> Health:
    """Judge a process by the time of its last heartbeat. A clock that was set back counts as no time. Pure."""
    age = max(0.0, now - last)
    return Health(age <= limit, age)


class Heartbeat:
    """The time of the last turn of a loop. Any thread may call it; a turn is one assignment.

    While it is paused the process waits for something outside it, such as the broker, and counts as alive.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = clock()

    def beat(self) -> None:
        """Record a turn of the loop; end a pause."""
        self._last = self._clock()

    def pause(self) -> None:
        """Count as alive until the next ``beat``."""
        self._last = None

    def last(self) -> float:
        """Return the time of the last turn; in a pause the present time."""
        return self._clock() if self._last is None else self._last


# The heartbeat of this process.
OF_PROCESS = Heartbeat()


def oldest(lasts: Sequence[Callable[[], float]], clock: Clock = time.monotonic) -> Callable[[], Health]:
    """Return a check of the process by the oldest of several times of last activity."""
    return lambda: health(min(last() for last in lasts), clock(), LIMIT_SECONDS)
