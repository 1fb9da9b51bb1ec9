"""Thread that sends hints to a server, so that no caller waits for the server.

A hint (a ring of the doorbell, a Celery message) may be lost: polling and the sweep do the same work later. Equal hints
that wait are merged, and their number is bounded. After a failure the waiting hints are dropped and the thread pauses.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)

MOST_WAITING = 10_000
PAUSE_SECONDS = 1.0
# How long the end of the process waits for hints that were not sent yet.
EXIT_SECONDS = 1.0


class HintSender:
    """``send`` gets the waiting hints, oldest first, in the thread of this sender; it may raise.

    ``without`` completes the warning at the beginning of an outage: the effect of the outage. The thread starts with
    the first hint. Threads may share a sender; a forked process starts with an empty one.
    """

    def __init__(self, send: Callable[[Sequence[str]], None], *, what: str, without: str) -> None:
        self._send, self._what, self._without = send, what, without
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.flush, EXIT_SECONDS)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._busy = self._failed = False
        self._thread: threading.Thread | None = None

    def put(self, hint: str) -> None:
        """Send a hint soon, or drop it when ``MOST_WAITING`` others wait. Never blocks."""
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting[hint] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"hints: {self._what}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until no hint waits, at most ``seconds``, and not at all during an outage. Return whether none waits."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, 0.0 if self._failed else seconds)

    def _is_idle(self) -> bool:
        return not self._waiting and not self._busy

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                hints, self._waiting, self._busy = list(self._waiting), {}, True
            failed = not self._sent(hints)
            with self._changed:
                self._busy, self._failed = False, failed
                self._changed.notify_all()
            if failed:
                threading.Event().wait(PAUSE_SECONDS)

    def _sent(self, hints: Sequence[str]) -> bool:
        try:
            self._send(hints)
        except Exception as error:  # noqa: BLE001  servers fail in many ways, and recover
            if not self._failed:
                _log.warning("%s cannot be used; %s: %s", self._what, self._without, error)
            return False
        if self._failed:
            _log.warning("%s can be used again.", self._what)
        return True
