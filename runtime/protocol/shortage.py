"""Handling of used-up descriptors, threads or memory in an acceptor: pause, report, and continue."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

PAUSE_SECONDS = 0.2
REPORT_SECONDS = 60.0

log = logging.getLogger("wire")


class Shortage:
    """Reports why no connection can be accepted: at once, and then once a minute. Thread-safe."""

    def __init__(
        self, report: Callable[[str], object] = log.warning, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._due = clock()

    def add(self, error: Exception) -> None:
        with self._lock:
            due = self._clock() >= self._due
            if due:
                self._due = self._clock() + REPORT_SECONDS
        if due:
            self._report(f"A connection cannot be taken ({error}); the next try is in {PAUSE_SECONDS:g} s.")
