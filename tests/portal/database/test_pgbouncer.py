"""PgBouncer before PostgreSQL: what works in which of its pool modes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.database.large_installation import environment_of, run_code, start, succeed
from tests.servers.pgbouncer_server import PgBouncer
from tests.servers.postgres_server import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.pgbouncer, pytest.mark.timeout(300)]
# Rows in several pieces, with a transaction for each, while another client has used one of the connections to the
# server in the meantime: a cursor of the server would be in the other session.
_READ = """
import psycopg
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from rbac.models import User
rows = ContentType.objects.iterator(chunk_size=10)
next(rows)
with psycopg.connect({url!r}) as other:
    other.execute("SELECT 1")
    for row in rows:
        assert User.objects.filter(username="admin").exists()
print("read to the end")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def pooler(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    """In the mode of the test's parameter, with four connections to the server."""
    pooler = PgBouncer(server, request.param, size=4)
    pooler.start()
    yield pooler
    pooler.stop()


@pytest.mark.parametrize("pooler", ["transaction"], indirect=True)
def test_transaction_mode_works_if_prepare_connects_to_postgresql_itself(
    pooler: PgBouncer, server: PostgresServer, tmp_path: Path
) -> None:
    environment = {**environment_of(pooler.url, tmp_path), "REGATTA_DATABASE_PREPARE_URL": server.url}
    assert "is up to date" in succeed(start(environment, "prepare"))
    assert "read to the end" in run_code(environment, _READ.format(url=pooler.url))


@pytest.mark.parametrize("pooler", ["transaction"], indirect=True)
def test_in_transaction_mode_an_address_for_prepare_is_asked_for(pooler: PgBouncer, tmp_path: Path) -> None:
    process = start(environment_of(pooler.url, tmp_path), "prepare")
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, "REGATTA_DATABASE_PREPARE_URL" in output) == (1, True), output


@pytest.mark.parametrize("pooler", ["session"], indirect=True)
def test_session_mode_works_without_changes(pooler: PgBouncer, tmp_path: Path) -> None:
    environment = environment_of(pooler.url, tmp_path)
    assert "is up to date" in succeed(start(environment, "prepare"))
    assert "read to the end" in run_code(environment, _READ.format(url=pooler.url))
