"""Heartbeats of the portal's processes: each process updates one row, from a thread of its own.

A write that fails or waits for the database delays nothing but the next write. A process that ends in order removes its
row; the rows of others are removed after ``KEEP``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from portal.common.clock import now as wall_clock
from portal.common.version import VERSION
from portal.models import ProcessHeartbeat
from portal.system import redaction
from portal.system.observations import Process

EVERY_SECONDS = 10.0
# How long an orderly end waits for the removal of the row.
END_SECONDS = 1.0
KEEP = timedelta(days=1)
PRUNE_EVERY = timedelta(hours=1)
ERROR_CHARACTERS = 300
# The page shows at most so many processes.
MOST_ROWS = 200
_log = logging.getLogger(__name__)


class Reporter:
    """Reports this process as one of ``kind`` until ``stop``. Methods may be called from any thread."""

    def __init__(self, kind: str, *, every: float = EVERY_SECONDS, clock: Callable[[], datetime] = wall_clock) -> None:
        self._clock, self._every = clock, every
        self._identity: dict[str, Any] = {
            "kind": kind,
            "host": socket.gethostname()[:253],
            "pid": os.getpid(),
            "started": clock(),
        }
        self._values: dict[str, Any] = {"version": VERSION}
        self._errors = _LastError(self._note_error)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start to report, and to note errors that are logged."""
        logging.getLogger().addHandler(self._errors)
        self._thread.start()

    def stop(self) -> None:
        """Remove the row. Waits at most ``END_SECONDS``."""
        logging.getLogger().removeHandler(self._errors)
        self._stopping.set()
        self._thread.join(END_SECONDS)

    def passed(self, seconds: float) -> None:
        """Note the duration of a pass that has just ended; the next heartbeat reports it."""
        self._values = {**self._values, "pass_seconds": seconds, "pass_at": self._clock()}

    def write(self) -> None:
        """Write the row now."""
        values = {**self._values, "seen": self._clock()}
        ProcessHeartbeat.objects.update_or_create(**self._identity, defaults=values)

    def remove(self) -> None:
        """Remove the row."""
        ProcessHeartbeat.objects.filter(**self._identity).delete()

    def _note_error(self, text: str) -> None:
        self._values = {**self._values, "last_error": text, "last_error_at": self._clock()}

    def _run(self) -> None:
        while not self._stopping.is_set():
            _quietly(self.write)
            self._stopping.wait(self._every)
        _quietly(self.remove)


def _quietly(access: Callable[[], object]) -> None:
    """Access the database. A failure is no failure of the process: the next heartbeat tries again."""
    try:
        access()
    except Exception:  # noqa: BLE001  whatever a database may raise
        _log.warning("The heartbeat of this process could not be written.", exc_info=True)
    finally:
        connection.close()


class _LastError(logging.Handler):
    """Passes on each message of level ERROR, without secrets. Of an exception it takes the class alone: its text may
    quote input or addresses."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._note = note
        self._redact = redaction.of_this_process()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            kind = record.exc_info[0] if record.exc_info else None
            text = f"{record.getMessage()}{f' ({kind.__name__})' if kind else ''}"
            self._note(" ".join(self._redact(text).split())[:ERROR_CHARACTERS])
        except Exception:  # noqa: BLE001  logging must not fail
            self.handleError(record)


class HeartbeatPruning:
    """The sweep's part: removes rows of processes that have not reported for ``KEEP``."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._next is None or now >= self._next:
            ProcessHeartbeat.objects.filter(seen__lt=now - KEEP).delete()
            self._next = now + PRUNE_EVERY


def processes() -> tuple[Process, ...]:
    """Return the last heartbeats, by kind, the newest process first."""
    rows = ProcessHeartbeat.objects.order_by("kind", "-started", "pk")[:MOST_ROWS]
    names = list(Process.__dataclass_fields__)
    return tuple(Process(**{name: getattr(row, name) for name in names}) for row in rows)
