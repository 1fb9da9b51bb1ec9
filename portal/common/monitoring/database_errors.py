"""Counting of failed database statements, on every connection of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import db
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from portal.common.monitoring import metrics

_CLASSES = frozenset(
    error.__name__
    for error in (
        *(db.DataError, db.DatabaseError, db.IntegrityError, db.InterfaceError, db.InternalError),
        *(db.NotSupportedError, db.OperationalError, db.ProgrammingError),
    )
)


def count_failures() -> None:
    """Count the failed statements of all connections that are opened from now on."""
    connection_created.connect(_watch, dispatch_uid="database-errors")


def _watch(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if _counting not in connection.execute_wrappers:
        connection.execute_wrappers.append(_counting)


def _counting(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    try:
        return execute(sql, params, many, context)
    except db.Error as error:
        metrics.DATABASE_ERRORS.labels(metrics.bounded(type(error).__name__, _CLASSES)).inc()
        raise
