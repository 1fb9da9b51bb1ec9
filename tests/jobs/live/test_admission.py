"""Websocket: who gets in, and what happens without a database."""

from __future__ import annotations

import psycopg
import pytest
from django.db import OperationalError

from jobs.live import closes
from jobs.live.authentication import Credentials
from jobs.live.person_socket import PersonSocket
from jobs.selectors import jobs as job_selectors
from portal.common.doorbell import ring
from rbac.socket_revocation import account_topic
from tests.factories import make_token
from tests.jobs.live.frames import do
from tests.jobs.sockets import HOST, Headers, bearer, connected, headers_of, play
from tests.jobs.streams.conftest import Writer
from tests.personas import Personas

pytestmark = pytest.mark.django_db(transaction=True)


def expect_close(headers: Headers, code: int) -> None:
    async def scenario() -> None:
        async with connected(headers) as socket:
            assert await socket.closed() == code

    play(scenario)


def test_a_socket_without_credentials_is_closed_with_4401(people: Personas) -> None:
    expect_close(headers_of(people.client("nobody")), 4401)


def test_a_bad_token_is_closed_with_4401(people: Personas) -> None:
    expect_close([(b"host", HOST), (b"authorization", b"Bearer rgt_wrong")], 4401)


@pytest.mark.parametrize("origin", [b"http://evil.example", b"http://127.0.0.1:9999", b"null", b""])
def test_a_page_of_another_origin_is_closed_with_4403(people: Personas, origin: bytes) -> None:
    expect_close(headers_of(people.client("owner"), origin), 4403)


def test_a_host_that_is_not_ours_is_closed_with_4403(people: Personas) -> None:
    cookies = headers_of(people.client("owner"))[2:]
    expect_close([(b"host", b"evil.example"), (b"origin", b"http://evil.example"), *cookies], 4403)


def test_a_program_gets_in_with_a_token_and_without_an_origin(people: Personas) -> None:
    headers = bearer(make_token(people.viewer))

    async def scenario() -> None:
        async with connected(headers) as socket:
            await socket.ask(op="ping")
            assert (await socket.frame())["t"] == "pong"

    play(scenario)


def test_one_socket_too_many_is_closed_with_4429(browser: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PersonSocket, "sockets_per_user", 1)

    async def scenario() -> None:
        async with connected(browser) as first:
            # The handshake is accepted before the caller is admitted: only an answer proves that the socket is counted.
            await first.ask(op="ping")
            assert (await first.frame())["t"] == "pong"
            async with connected(browser) as second:
                assert await second.closed() == 4429
        async with connected(browser) as third:
            await third.ask(op="ping")
            assert (await third.frame())["t"] == "pong"

    play(scenario)


def fail(*_: object) -> None:
    raise OperationalError("the database is away")


def test_a_socket_ends_where_its_caller_cannot_be_checked_again(
    people: Personas, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="ping")
            await socket.frame()
            monkeypatch.setattr(Credentials, "user", fail)
            await do(ring, account_topic(people.viewer.pk))
            assert await socket.closed() == closes.FAILED

    play(scenario)


def test_a_socket_ends_where_its_caller_cannot_be_let_in(browser: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Credentials, "user", fail)
    expect_close(browser, closes.FAILED)


def lose(*_: object) -> None:
    raise OperationalError("connection refused") from psycopg.OperationalError("connection refused")


def test_a_socket_that_meets_a_lost_database_is_closed_for_another_try(
    browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Credentials, "user", lose)
    expect_close(browser, closes.UNAVAILABLE)


def test_a_request_that_fails_closes_the_socket_and_releases_its_place(
    writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_selectors, "job_for", fail)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", id="s1", stream="logs", job=writer.job.pk)
            assert await socket.closed() == closes.FAILED

    play(scenario)
