"""A database that is full, locked or unreachable: a 503 that clients repeat, and no partial writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.test import AsyncClient, Client

from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, JobEvent, Replica, Transition
from jobs.models.streams import Block, Source, StreamHead
from portal.common.messages import requests as messages
from portal.common.outages import RETRY_SECONDS, is_lost, unavailable
from portal.http.body_limits import ANONYMOUS_LIMIT
from quota.models import Claim
from rbac.models import AuditEntry
from regatta import http as regatta_http
from runtime.agent.delivery import ingest_client as agent
from tests.factories import make_attempt, make_job, make_token
from tests.messages import mentions
from tests.personas import Personas, make_personas

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "token-of-the-attempt"
SPEC = {
    "name": "digits",
    "files": {"train.py": "print('hello')\n"},
    "dataset": "public/digits",
    "roles": {"trainer": {"replicas": 2, "memory": "512Mi"}},
}
# Compressed, more than any page has free.
LINES = [[1e9, "stdout", Random(number).randbytes(2000).hex()] for number in range(100)]
ROWS = (Job, Transition, JobEvent, Claim, AuditEntry, Block, Source, StreamHead)


@pytest.fixture
def people() -> Personas:
    return make_personas()


@pytest.fixture
def attempt(people: Personas) -> Attempt:
    attempt = make_attempt(make_job(attempt=1, state=JobState.RUNNING), token=TOKEN)
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
    return attempt


@pytest.fixture
def fill() -> Iterator[Callable[[], None]]:
    """Stop the growth of the file, and fill its pages."""
    if connection.vendor != "sqlite":
        pytest.skip("the limit of pages is SQLite's")

    def filled() -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE ballast (bytes BLOB)")
            cursor.execute("PRAGMA page_count")
            cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")
        with pytest.raises(OperationalError, match="full"), connection.cursor() as cursor:
            while True:
                cursor.execute("INSERT INTO ballast VALUES (zeroblob(4000))")

    yield filled
    let_grow()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE ballast")


def let_grow() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA max_page_count = {2**32 - 2}")


@pytest.fixture
def lock() -> Iterator[Callable[[], None]]:
    """Hold the write lock for longer than the portal waits."""
    if connection.vendor != "sqlite":
        pytest.skip("one writer at a time is SQLite's")
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)

    def locked() -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 20")
        other.execute("BEGIN IMMEDIATE")

    yield locked
    other.close()
    connection.close()


@pytest.fixture
def take_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Make every connection to the database fail."""
    if connection.vendor != "sqlite":
        pytest.skip("the database is a file for this test")

    def taken() -> None:
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "nowhere" / "database"))

    yield taken
    connection.close()


def counts() -> dict[str, int]:
    return {model.__name__: model._default_manager.count() for model in ROWS}


def send_logs(attempt: Attempt) -> Any:
    return Client().post(
        f"/ingest/v1/attempts/{attempt.pk}/logs",
        json.dumps({"replica": "trainer-0", "first": 1, "lines": LINES}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


def is_repeated(answer: Any) -> bool:
    """Return whether the answer is a problem document that the command, the SDK and the agent repeat."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
    assert answer.json()["code"] == "unavailable"
    return (
        float(answer.headers["Retry-After"]) == RETRY_SECONDS
        and answer.status_code in regatta_http._RETRIED
        and isinstance(agent.meaning(answer.status_code, answer.content), agent.Failed)
    )


# --- Full ------------------------------------------------------------------------------------------------------------
def test_a_job_that_a_full_database_cannot_hold_leaves_nothing_and_is_sent_again(
    people: Personas, fill: Callable[[], None]
) -> None:
    before = counts()
    fill()
    wanted = {**SPEC, "env": {f"NAME_{number}": "x" * 1000 for number in range(20)}}
    answer = people.client("developer").post(
        "/api/v1/namespaces/team/jobs", json.dumps(wanted), content_type="application/json"
    )
    assert is_repeated(answer)
    assert mentions(answer.json()["detail"], messages.DATABASE_FULL)
    assert counts() == before


def test_lines_that_a_full_database_cannot_hold_are_sent_again(attempt: Attempt, fill: Callable[[], None]) -> None:
    before = counts()
    fill()
    assert is_repeated(send_logs(attempt))
    assert counts() == before


def test_lines_are_taken_once_there_is_space_again(attempt: Attempt, fill: Callable[[], None]) -> None:
    fill()
    send_logs(attempt)
    let_grow()
    assert send_logs(attempt).status_code == 200
    assert StreamHead.objects.get(job=attempt.job).last == len(LINES)


# --- Locked ----------------------------------------------------------------------------------------------------------
def test_a_job_is_sent_again_while_another_process_holds_the_lock(people: Personas, lock: Callable[[], None]) -> None:
    client, before = people.client("developer"), counts()
    lock()
    answer = client.post("/api/v1/namespaces/team/jobs", json.dumps(SPEC), content_type="application/json")
    assert is_repeated(answer)
    assert counts() == before


def test_lines_are_sent_again_while_another_process_holds_the_lock(attempt: Attempt, lock: Callable[[], None]) -> None:
    before = counts()
    lock()
    assert is_repeated(send_logs(attempt))
    assert counts() == before


def test_a_form_that_meets_the_lock_is_answered_by_a_page(people: Personas, lock: Callable[[], None]) -> None:
    client = people.client("owner")
    lock()
    answer = client.post("/sign-out")
    assert answer.status_code == 503
    assert answer.headers["Content-Type"].startswith("text/html")
    assert float(answer.headers["Retry-After"]) == RETRY_SECONDS
    assert mentions(answer.content.decode(), messages.DATABASE_UNAVAILABLE)


# --- Unreachable -----------------------------------------------------------------------------------------------------
def test_the_session_cannot_be_read_without_a_database(people: Personas, take_away: Callable[[], None]) -> None:
    client = people.client("owner")
    client.raise_request_exception = False
    take_away()
    assert is_repeated(client.get("/api/v1/jobs"))


def test_the_page_of_an_outage_needs_no_database(people: Personas, take_away: Callable[[], None]) -> None:
    client = people.client("owner")
    client.raise_request_exception = False
    take_away()
    answer = client.get("/n/team/jobs")
    assert (answer.status_code, float(answer.headers["Retry-After"])) == (503, RETRY_SECONDS)
    assert "error-code" in answer.content.decode()
    assert mentions(answer.content.decode(), messages.DATABASE_UNAVAILABLE)


def test_a_page_that_cannot_be_made_is_a_line_of_text(
    people: Personas, take_away: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationalError("away")

    monkeypatch.setattr("portal.common.problems.render", fail)
    client = people.client("owner")
    client.raise_request_exception = False
    take_away()
    answer = client.get("/n/team/jobs")
    assert (answer.status_code, float(answer.headers["Retry-After"])) == (503, RETRY_SECONDS)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert mentions(answer.content.decode(), messages.DATABASE_UNAVAILABLE)


def test_a_large_body_of_a_caller_who_cannot_be_looked_up_is_sent_again(
    people: Personas, take_away: Callable[[], None]
) -> None:
    """The look-up comes before Django's own handlers."""
    token = make_token(people.owner)
    take_away()
    answer = async_to_sync(AsyncClient(raise_request_exception=False).post)(
        "/api/v1/namespaces/team/jobs",
        b'"' + b"x" * ANONYMOUS_LIMIT + b'"',
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )
    assert is_repeated(answer)


def test_an_error_of_middleware_is_found_behind_an_event_loop_too(
    people: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise OperationalError("away") from sqlite_error(sqlite3.SQLITE_BUSY)

    monkeypatch.setattr("rbac.sign_in.sessions.SessionStore.load", fail)
    client = AsyncClient(raise_request_exception=False)
    client.cookies = people.client("owner").cookies
    assert async_to_sync(client.get)("/n/team/jobs").status_code == 503


# --- Which errors ----------------------------------------------------------------------------------------------------
def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("an error of the database")
    error.sqlite_errorcode = code
    return error


def raised(kind: type[Exception], cause: Exception) -> Exception:
    error = kind(str(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_BUSY_SNAPSHOT,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    ],
)
def test_sqlite_is_unavailable(code: int) -> None:
    assert unavailable(raised(OperationalError, sqlite_error(code))) is not None


@pytest.mark.parametrize("code", [sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT])
def test_a_fault_of_the_code_or_the_file_of_sqlite_stays_one(code: int) -> None:
    assert unavailable(raised(OperationalError, sqlite_error(code))) is None


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.InvalidPassword(),
        psycopg.errors.DiskFull(),
        psycopg.errors.TooManyConnections(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.LockNotAvailable(),
        psycopg.errors.ReadOnlySqlTransaction(),
    ],
)
def test_postgresql_is_unavailable(cause: Exception) -> None:
    assert unavailable(raised(OperationalError, cause)) is not None


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.CannotConnectNow(),
        psycopg.errors.InvalidPassword(),
        psycopg.errors.ConnectionFailure(),
    ],
)
def test_a_server_that_cannot_be_reached_is_lost(cause: Exception) -> None:
    assert is_lost(raised(OperationalError, cause))


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.errors.DiskFull(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.QueryCanceled(),
        psycopg.errors.UndefinedTable(),
        sqlite3.OperationalError("database is locked"),
        None,
    ],
)
def test_a_server_that_answers_is_not_lost(cause: Exception | None) -> None:
    assert not is_lost(raised(OperationalError, cause) if cause else OperationalError("away"))


def test_a_connection_of_postgresql_that_was_closed_is_unavailable() -> None:
    assert unavailable(raised(InterfaceError, psycopg.InterfaceError("the connection is closed"))) is not None


@pytest.mark.parametrize(
    "cause", [psycopg.errors.UndefinedTable(), psycopg.errors.SyntaxError(), psycopg.ProgrammingError("placeholders")]
)
def test_a_fault_of_the_code_on_postgresql_stays_one(cause: Exception) -> None:
    assert unavailable(raised(DatabaseError, cause)) is None


@pytest.mark.parametrize("error", [None, ValueError("no"), OSError(28, "No space left on device")])
def test_other_errors_are_not_outages(error: Exception | None) -> None:
    assert unavailable(error) is None
