"""Database errors that pass by themselves or once the operator has acted: full, locked, unreachable, shutting down.

A request that meets one has changed nothing: its transaction was rolled back. The answer is a 503 with ``Retry-After``,
and clients and agents repeat the request. Every other database error is a fault of the code and stays a 500.
"""

from __future__ import annotations

import logging
import sqlite3

from django.db import DatabaseError, InterfaceError, OperationalError

from portal.common.errors import Unavailable
from portal.common.messages import requests as messages
from portal.common.monitoring import metrics

RETRY_SECONDS = 5.0
_log = logging.getLogger(__name__)

_FULL = messages.DATABASE_FULL()
_BUSY = messages.DATABASE_UNAVAILABLE()

# Primary result codes of SQLite: the low byte of an extended code.
_SQLITE_FULL = frozenset({sqlite3.SQLITE_FULL})
_SQLITE_AWAY = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM),
    }
)
# SQLSTATE of PostgreSQL. Classes: connection lost, out of resources, ended by the operator, transaction to be repeated.
# 55P03: a lock was not available; 25006: a standby, during a failover.
_POSTGRES_FULL = frozenset({"53100"})
_POSTGRES_CLASSES = frozenset({"08", "53", "57", "40"})
_POSTGRES_STATES = frozenset({"55P03", "25006"})


def unavailable(error: BaseException | None) -> Unavailable | None:
    """Return the error that answers the request, or None when the database error is a fault of the code."""
    cause = error.__cause__ if isinstance(error, DatabaseError | InterfaceError) else error
    detail = _detail(error, cause)
    if not detail:
        return None
    metrics.DATABASE_UNAVAILABLE.inc()
    _log.error("The database is unavailable: %s", str(error).strip())
    return Unavailable(detail, retry_after=RETRY_SECONDS)


def _detail(error: BaseException | None, cause: BaseException | None) -> str:
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return _FULL if code in _SQLITE_FULL else _BUSY if code in _SQLITE_AWAY else ""
    state = getattr(cause, "sqlstate", "")
    if state is None:  # an error of the client library: without a connection no server sends a state
        return _BUSY if isinstance(error, OperationalError | InterfaceError) else ""
    if state in _POSTGRES_FULL:
        return _FULL
    return _BUSY if state[:2] in _POSTGRES_CLASSES or state in _POSTGRES_STATES else ""
