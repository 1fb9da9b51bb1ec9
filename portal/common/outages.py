"""Database errors that pass by themselves or once the operator has acted: full, locked, unreachable, shutting down.

A request that meets one has changed nothing: its transaction was rolled back. The answer is a 503 with ``Retry-After``,
and clients and agents repeat the request. Every other database error is a fault of the code and stays a 500.

A lost connection is closed where its error is answered, so that the thread opens a new one for its next query.
"""

from __future__ import annotations

import logging
import sqlite3

from django.db import DatabaseError, InterfaceError, OperationalError, connections

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
# SQLSTATE of PostgreSQL. Classes: connection lost, account refused (while its password is changed), out of resources,
# ended by the operator, transaction to be repeated.
# 55P03: a lock was not available; 25006: a standby, during a failover.
_POSTGRES_FULL = frozenset({"53100"})
_POSTGRES_CLASSES = frozenset({"08", "28", "53", "57", "40"})
_POSTGRES_STATES = frozenset({"55P03", "25006"})
# Of these the states after which there is no connection: 57P0x are a server that starts, stops or has crashed.
_POSTGRES_LOST = ("08", "28", "57P0")


def unavailable(error: BaseException | None) -> Unavailable | None:
    """Return the error that answers the request, or None when the database error is a fault of the code."""
    cause = error.__cause__ if isinstance(error, DatabaseError | InterfaceError) else error
    detail = _detail(error, cause)
    if not detail:
        return None
    metrics.DATABASE_UNAVAILABLE.inc()
    _log.error("The database is unavailable: %s", " ".join(str(error).split()))
    if is_lost(error):
        close_lost()
    return Unavailable(detail, retry_after=RETRY_SECONDS)


def is_lost(error: BaseException | None) -> bool:
    """Return whether the server cannot be reached: it is down, starts, stops, refuses the account or has closed the
    connection. Never true of the embedded database."""
    cause = error.__cause__ if isinstance(error, DatabaseError | InterfaceError) else error
    if isinstance(cause, sqlite3.Error):
        return False
    state = getattr(cause, "sqlstate", "")
    if state is None:  # an error of the client library: without a connection no server sends a state
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_POSTGRES_LOST)


def close_lost() -> None:
    """Close this thread's connections that an error may have broken. Inside a transaction Django closes them itself."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            connection.close()


def log_failure(log: logging.Logger, error: BaseException, message: str, *values: object) -> None:
    """Log a failure after which the caller goes on: with a traceback, or in one line when the database is lost."""
    if is_lost(error):
        log.warning("%s The database cannot be reached.", message % values)
    else:
        log.error(message, *values, exc_info=error)


def _detail(error: BaseException | None, cause: BaseException | None) -> str:
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return _FULL if code in _SQLITE_FULL else _BUSY if code in _SQLITE_AWAY else ""
    state = getattr(cause, "sqlstate", "")
    if state is None:  # an error of the client library: without a connection no server sends a state
        return _BUSY if is_lost(error) else ""
    if state in _POSTGRES_FULL:
        return _FULL
    return _BUSY if state[:2] in _POSTGRES_CLASSES or state in _POSTGRES_STATES else ""
