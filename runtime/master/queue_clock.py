"""The clock of the task queue, which stands still while the job is paused: no task times out during that time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class QueueClock:
    """Seconds, steady, without the time of pauses. Any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._paused = 0.0  # seconds of all pauses that are over
        self._since: float | None = None  # when the present pause began

    def __call__(self) -> float:
        with self._lock:
            return (self._clock() if self._since is None else self._since) - self._paused

    def pause(self, on: bool) -> None:
        """Stand still, or go on. A repeated request changes nothing."""
        with self._lock:
            if on and self._since is None:
                self._since = self._clock()
            elif not on and self._since is not None:
                self._paused += self._clock() - self._since
                self._since = None
