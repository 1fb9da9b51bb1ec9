"""Work queue of jobs: each key is queued once, however often it is added, and processed by one worker at a time."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


class WorkQueue:
    """Thread-safe queue of keys, first in, first out. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float], backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff(0.5, 60.0)
        self._lock = threading.Condition()
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()  # the keys in _ready
        self._taken: set[str] = set()
        self._again: set[str] = set()  # added while taken
        self._later: list[tuple[float, str]] = []  # a heap
        self._due: dict[str, float] = {}  # the earliest delayed addition, by key
        self._failures: dict[str, int] = {}
        self._since: dict[str, float] = {}  # when a key was first added
        self._closed = False

    def add(self, key: str) -> None:
        with self._lock:
            self._add(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after a delay. Of several delayed additions the earliest counts."""
        with self._lock:
            if seconds <= 0:
                self._add(key)
                return
            due = self._clock() + seconds
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, key))
                self._lock.notify()

    def retry(self, key: str) -> None:
        """Add the key after a back-off that grows with each consecutive failure."""
        with self._lock:
            self._failures[key] = self._failures.get(key, 0) + 1
            pause = self._backoff.pause(self._failures[key])
        self.add_after(key, pause)

    def forget(self, key: str) -> None:
        """Reset the consecutive failures of the key."""
        with self._lock:
            self._failures.pop(key, None)

    def get(self, *, wait: bool = True) -> tuple[str, float] | None:
        """Return a key and the seconds that it has waited; None if the queue is closed, or empty with ``wait=False``.

        The caller must call ``done`` with the key.
        """
        with self._lock:
            while True:
                self._wake()
                if self._ready and not self._closed:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._taken.add(key)
                    return key, self._clock() - self._since.pop(key)
                if self._closed or not wait:
                    return None
                self._lock.wait(self._until_next())

    def done(self, key: str) -> None:
        with self._lock:
            self._taken.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._add(key)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready)

    # With the lock held
    def _add(self, key: str) -> None:
        self._since.setdefault(key, self._clock())
        if key in self._taken:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._lock.notify()

    def _wake(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, key = heapq.heappop(self._later)
            if self._due.get(key) == due:  # else an earlier addition was processed
                del self._due[key]
                self._add(key)

    def _until_next(self) -> float | None:
        return max(self._later[0][0] - self._clock(), 0.0) if self._later else None


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off in seconds: ``first``, then doubled each time, at most ``longest``."""

    first: float = 0.5
    longest: float = 30.0

    def pause(self, failures: int, chance: float = 1.0) -> float:
        """Return the pause after this number of consecutive failures.

        ``chance``, from 0 to 1, spreads callers over the second half of the pause.
        """
        if failures <= 0:
            return 0.0
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full / 2 + full / 2 * chance
