"""Restorations of the database, as ``manage.py after_restore`` records them in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from rbac.audit import log
from rbac.models import AuditEntry

ACTION = "database.restore"
# For so long after a restoration, files that the database does not know are kept: it may be restored once more.
KEPT = timedelta(days=7)
_FRESH_SECONDS = 5.0


def record(detail: Mapping[str, Any]) -> AuditEntry:
    """Record that the database was restored, with what was found."""
    return log.record(ACTION, "database", actor=None, detail=detail)


def latest() -> AuditEntry | None:
    """Return the record of the last restoration, or None."""
    return AuditEntry.objects.filter(action=ACTION).order_by("-at", "-id").first()


def keeps_unknown_files(now: datetime) -> bool:
    """Return whether the last restoration is so recent that files unknown to the database are kept."""
    row = latest()
    return row is not None and now < row.at + KEPT


class Epoch:
    """Name of the state to which the database was last restored, read at most every few seconds.

    Agents get it with each answer. When it changes, the database may have lost what they had reported.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known = ("", -_FRESH_SECONDS)

    def current(self) -> str:
        """Return the name; empty for a database that was never restored."""
        name, read = self._known
        if self._clock() >= read + _FRESH_SECONDS:
            row = latest()
            name = row.at.isoformat() if row else ""
            self._known = (name, self._clock())
        return name


EPOCH = Epoch()
