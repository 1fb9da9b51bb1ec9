"""Load of this process by requests, and the age of batches that it implies for agents.

Agents send a batch as soon as its first entry is ``contract.BATCH_SECONDS`` old, so that people see lines at once. A
portal that cannot keep up would queue these requests until they time out. Here each process measures itself once a
second and doubles the age while it is overloaded, so that the same entries arrive in fewer and larger batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Seconds between two changes of the age, and its limits.
WINDOW_SECONDS = 1.0
SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 5.0
# CPU seconds a second of this process, of which one interpreter can use about one. Between the two nothing changes.
_BUSY, _IDLE = 0.7, 0.4
# Requests in progress. Many with little CPU: the process waits for the database, or gets no processor.
_CROWDED, _QUIET = 16, 4


@dataclass(frozen=True)
class Sample:
    """``cpu``: CPU seconds a second. ``waiting``: the most requests that were in progress at once."""

    cpu: float
    waiting: int


def next_age(age: float, sample: Sample) -> float:
    """Return the age of batches in seconds after a window with this load. Pure."""
    if sample.cpu > _BUSY or sample.waiting > _CROWDED:
        return min(LONGEST_SECONDS, age * 2)
    if sample.cpu < _IDLE and sample.waiting < _QUIET:
        return max(SHORTEST_SECONDS, age / 2)
    return age


class RequestLoad:
    """Measures a process. Every method can be called from any thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._lock = threading.Lock()
        self._age = SHORTEST_SECONDS
        self._in_progress = self._most = 0
        self._since, self._used = clock(), cpu()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as in progress."""
        with self._lock:
            self._in_progress += 1
            self._most = max(self._most, self._in_progress)
        try:
            yield
        finally:
            with self._lock:
                self._in_progress -= 1

    def batch_seconds(self) -> float:
        """Return the age at which agents should send a batch, in seconds."""
        with self._lock:
            passed = self._clock() - self._since
            if passed >= WINDOW_SECONDS:
                used = self._cpu()
                self._age = next_age(self._age, Sample((used - self._used) / passed, self._most))
                self._since, self._used, self._most = self._clock(), used, self._in_progress
            return self._age


# Of this process.
OF_PROCESS = RequestLoad()
