"""A PostgreSQL that is stopped, crashes, or has another password: what web process and sweep do until it is back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from jobs.live import closes
from portal.common.messages import requests as messages
from portal.common.outages import RETRY_SECONDS
from runtime.agent.delivery import ingest_client as agent
from tests.messages import mentions
from tests.portal.database.running_web import OUTAGES, Web, running, running_web
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
each_outage = pytest.mark.parametrize("kind", OUTAGES)
LINES = {"replica": "trainer-0", "first": 1, "lines": [[1e9, "stdout", "hello"]]}
# The last task of a sweep.
LAST = "sign-in attempts"
# More than an anonymous caller may send: who it is, is looked up before the body is read.
LARGE = {"name": "x" * 100_000}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running_web(tmp_path_factory.mktemp("lost-database")) as found:
        yield found


def answers(web: Web) -> dict[str, httpx.Response]:
    """Return an answer of each kind that needs the database."""
    return {
        "page": web.page("/n/team/jobs"),
        "missing page": web.page("/nowhere"),
        "API by token": web.api("GET", "/api/v1/me"),
        "API by session": web.page("/api/v1/me"),
        "API with a large body": web.api("POST", "/api/v1/namespaces/team/jobs", json=LARGE),
        "ingest": web.ingest("logs", LINES),
    }


@pytest.mark.invariant("A request that fails because the database is lost gets a 503 with Retry-After.")
@each_outage
def test_every_request_that_needs_the_database_is_to_be_repeated(web: Web, kind: str) -> None:
    with web.outage(kind):
        during = answers(web)
    for name, answer in during.items():
        assert (name, answer.status_code) == (name, 503)
        assert (name, float(answer.headers["Retry-After"])) == (name, RETRY_SECONDS)


@each_outage
def test_the_first_request_after_it_is_answered_as_before(web: Web, kind: str) -> None:
    before = {name: answer.status_code for name, answer in answers(web).items()}
    with web.outage(kind):
        answers(web)
    assert {name: answer.status_code for name, answer in answers(web).items()} == before


def test_programs_get_the_stable_code(web: Web) -> None:
    with web.outage("stopped"):
        during = answers(web)
    for name in ("API by token", "API by session", "API with a large body", "ingest"):
        assert during[name].headers["Content-Type"] == "application/problem+json"
        assert during[name].json()["code"] == "unavailable"


@pytest.mark.parametrize(("accepted", "language"), [("en", "en"), ("zh-CN", "zh-hans")])
def test_people_get_the_page_in_their_language(web: Web, accepted: str, language: str) -> None:
    with web.outage("stopped"):
        page = web.page("/n/team/jobs", accepted)
    assert f'<html lang="{language}"' in page.text
    assert 'class="error-code">503' in page.text
    assert mentions(page.text, messages.DATABASE_UNAVAILABLE) == (language == "en")


def test_a_person_is_still_signed_in_after_it(web: Web) -> None:
    with web.outage("stopped"):
        page = web.page("/n/team/jobs")
    assert "regatta-session" not in page.headers.get("Set-Cookie", "")
    assert web.page("/n/team/jobs").status_code == 200


def test_an_agent_keeps_its_lines_and_delivers_them_later(web: Web) -> None:
    with web.outage("stopped"):
        during = web.ingest("logs", LINES)
    assert isinstance(agent.meaning(during.status_code, during.content), agent.Failed)
    after = web.ingest("logs", LINES)
    assert agent.meaning(after.status_code, after.content) == agent.Taken({"last": 1})


# --- Websockets ------------------------------------------------------------------------------------------------------
def socket_to(web: Web) -> ClientConnection:
    headers = {"Authorization": f"Bearer {web.rows['token']}"}
    return connect(f"ws://127.0.0.1:{web.port}/ws/v1/stream", additional_headers=headers, open_timeout=60)


def ask(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    """Send a request and return the next frame."""
    socket.send(json.dumps(body))
    frame: dict[str, Any] = json.loads(socket.recv(timeout=60))
    return frame


def test_a_socket_that_is_opened_without_a_database_is_closed_for_another_try(web: Web) -> None:
    with web.outage("stopped"), socket_to(web) as socket, pytest.raises(ConnectionClosed):
        socket.recv(timeout=60)
    assert socket.close_code == closes.UNAVAILABLE


def test_a_subscription_that_cannot_be_checked_closes_its_socket_for_another_try(web: Web) -> None:
    with socket_to(web) as socket:
        assert ask(socket, op="ping")["t"] == "pong"
        with web.outage("stopped"), pytest.raises(ConnectionClosed):
            ask(socket, op="sub", stream="logs", job=web.rows["job"])
        assert socket.close_code == closes.UNAVAILABLE


def test_a_socket_comes_back_from_its_cursor(web: Web) -> None:
    web.ingest("logs", LINES)
    with web.outage("stopped"):
        answers(web)
    with socket_to(web) as socket:
        frame = ask(socket, op="sub", stream="logs", job=web.rows["job"], after=0)
    assert (frame["t"], frame["lo"], frame["hi"]) == ("logs", 1, 1)


# --- Readiness -------------------------------------------------------------------------------------------------------
def test_a_process_stays_ready_for_a_while_and_then_names_what_is_missing(web: Web) -> None:
    assert web.ask("GET", "/readyz").json() == {"status": "ok"}
    with web.outage("stopped"):
        first = web.ask("GET", "/readyz")
        assert (first.status_code, first.json()["missing"]) == (200, ["database"])
        until("it is not ready any more", lambda: web.ask("GET", "/readyz").status_code == 503)
        assert web.ask("GET", "/readyz").json()["missing"] == ["database"]
    assert web.ask("GET", "/readyz").json() == {"status": "ok"}


def test_a_process_is_alive_without_a_database(web: Web) -> None:
    with web.outage("stopped"):
        assert web.ask("GET", "/healthz").status_code == 200


# --- Sweep -----------------------------------------------------------------------------------------------------------
@each_outage
def test_the_sweep_waits_for_the_database_and_writes_two_lines(web: Web, kind: str, tmp_path: Path) -> None:
    leave_a_mark(web)
    with running(web.environment, "sweep", tmp_path / "sweep.log") as log:
        until("there was a sweep", lambda: not is_marked(web), 120, story=log.read_text)
        before = len(log.read_text().splitlines())
        with web.outage(kind):
            until("the loss is noted", lambda: "is lost" in log.read_text(), 60, story=log.read_text)
        until("the return is noted", lambda: "answers again" in log.read_text(), 60, story=log.read_text)
        lines = log.read_text().splitlines()[before:]
    assert ["is lost" in lines[0], "answers again" in lines[1], len(lines)] == [True, True, 2], "\n".join(lines)


def leave_a_mark(web: Web) -> None:
    """Insert the failure of a task, which the first whole sweep removes.

    A sweep that ended during an outage may have left the same failure.
    """
    statement = "INSERT INTO jobs_failedtask (name, since, last, failures, error) VALUES (%s, now(), now(), 1, '')"
    with psycopg.connect(web.server.url) as connection:
        connection.execute(f"{statement} ON CONFLICT (name) DO NOTHING", [LAST])


def is_marked(web: Web) -> bool:
    with psycopg.connect(web.server.url) as connection:
        return connection.execute("SELECT 1 FROM jobs_failedtask WHERE name = %s", [LAST]).fetchone() is not None
