"""The pool of the Django backend on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, transaction
from django.db.utils import ConnectionHandler
from django.test import Client
from pytest_django import DjangoDbBlocker

from portal import env
from portal.common import outages
from portal.common.postgresql import pool
from portal.common.postgresql.returning import return_connections

pytestmark = pytest.mark.postgres
SIZE = 8


@pytest.fixture
def database(
    postgres: str, django_db_blocker: DjangoDbBlocker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ConnectionHandler]:
    """The portal's settings of a database with a pool of its own; several handlers stand for several threads."""
    monkeypatch.setenv("DATABASE", postgres)
    monkeypatch.setattr(pool, "POOLS", {})
    connections = _handler()
    with django_db_blocker.unblock():
        yield connections
        connections["default"].close()
        pool.close_idle()


def _handler() -> ConnectionHandler:
    return ConnectionHandler({"default": env.database("DATABASE", SIZE) or {}})


def backend_of(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_the_next_request_uses_the_connection_of_the_one_before(database: ConnectionHandler) -> None:
    first = backend_of(database["default"])
    database["default"].close()
    assert backend_of(database["default"]) == first


def test_a_connection_that_was_closed_in_a_transaction_is_not_used_again(database: ConnectionHandler) -> None:
    connection = database["default"]
    connection.set_autocommit(False)
    first = backend_of(connection)
    connection.close()
    assert backend_of(connection) != first


def test_a_connection_with_a_failed_statement_is_not_used_again(database: ConnectionHandler) -> None:
    connection = database["default"]
    first = backend_of(connection)
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column")
    connection.close()
    assert backend_of(connection) != first


def test_no_request_meets_a_connection_that_the_server_has_closed(database: ConnectionHandler, postgres: str) -> None:
    first = backend_of(database["default"])
    database["default"].close()
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert backend_of(database["default"]) != first


def test_a_full_pool_is_an_outage(database: ConnectionHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = [_handler() for _ in range(SIZE)]
    for handler in handlers:
        backend_of(handler["default"])
    monkeypatch.setattr(pool.Pool.take, "__defaults__", (0.0,))
    with pytest.raises(OperationalError, match=f"all {SIZE} connections were in use") as raised:
        backend_of(database["default"])
    assert outages.unavailable(raised.value) is not None
    for handler in handlers:
        handler["default"].close()
    assert backend_of(database["default"])


def test_a_request_that_waits_for_its_client_holds_no_connection(
    database: ConnectionHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.common.postgresql.returning.connections", database)
    backend_of(database["default"])
    return_connections()
    assert pool.counted(lambda one: one.taken) == 0


def test_a_transaction_keeps_its_connection_while_the_client_is_waited_for(
    database: ConnectionHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.common.postgresql.returning.connections", database)
    monkeypatch.setattr("django.db.transaction.get_connection", lambda using=None: database["default"])
    with transaction.atomic():
        first = backend_of(database["default"])
        return_connections()
        assert backend_of(database["default"]) == first


def test_a_process_with_all_connections_in_use_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "is_full", lambda: True)
    # Without the mark django_db a query would fail.
    assert Client().get("/readyz").json() == {"status": "ok"}
