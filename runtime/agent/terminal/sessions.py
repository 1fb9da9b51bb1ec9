"""The terminals of one replica, found by their ids. Thread-safe."""

from __future__ import annotations

import secrets
import threading

from runtime.agent.terminal.guest import Guests
from runtime.agent.terminal.session import IDLE_SECONDS, Session, Size

MOST_SESSIONS = 8
_ID_BYTES = 12


class TooManySessions(Exception):
    """The replica has as many terminals as it may have."""


class Sessions:
    """Creates terminals and finds them again. A terminal that has ended is forgotten."""

    def __init__(self, guests: Guests, *, most: int = MOST_SESSIONS, idle: float = IDLE_SECONDS) -> None:
        self._guests, self._most, self._idle = guests, most, idle
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def create(self, size: Size) -> Session:
        """Start a terminal. Raises TooManySessions and launch.NotLaunched."""
        with self._lock:
            if len(self._sessions) >= self._most:
                raise TooManySessions
            session = Session(self._guests, secrets.token_hex(_ID_BYTES), size, self._forget, self._idle)
            self._sessions[session.name] = session
        try:
            session.start()
        except BaseException:  # such as no thread
            self._forget(session)
            raise
        return session

    def find(self, name: str) -> Session | None:
        """Return the running terminal with that id, or None."""
        with self._lock:
            return self._sessions.get(name)

    def _forget(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.name, None)
