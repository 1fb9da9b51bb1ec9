"""Authorisation of every stream of the socket, for every persona. A stream missing in the table fails the last test."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.lifecycle.states import JobState
from jobs.live.routing import websocket_urlpatterns
from jobs.live.subscriptions import STREAMS
from tests.factories import LONG_AGO, make_attempt, make_job, make_token
from tests.jobs.sockets import Headers, bearer, connected, headers_of, play
from tests.jobs.streams.conftest import Writer
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "00000000-0000-4000-8000-000000000000"

# The answer for each: admin, owner, developer, viewer, stranger, nobody (of personas.EVERYBODY); then a disabled user;
# then tokens: a revoked one, an expired one, one of a disabled owner, one of an owner without the scope, one with it.
# A word is the kind of the first frame; not_found is a refusal on an open socket; a number is the code of its close.
TABLE = {
    "logs": "logs logs logs logs not_found 4401 4401 4401 4401 4401 not_found logs",
    "metrics": "metrics metrics metrics metrics not_found 4401 4401 4401 4401 4401 not_found metrics",
    "status": "status status status status not_found 4401 4401 4401 4401 4401 not_found status",
    "jobs": "jobs jobs jobs jobs not_found 4401 4401 4401 4401 4401 forbidden jobs",
}


@pytest.fixture
def written(people: Personas) -> Writer:
    """A running job of ``team`` with a line and a point."""
    job = make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)
    writer = Writer(make_attempt(job))
    writer.lines(1, 1)
    writer.points(1, 1)
    return writer


def callers(people: Personas) -> list[Headers]:
    """Return the headers of every persona with a browser, then of programs with tokens."""
    browsers = [headers_of(people.client(name)) for name in (*EVERYBODY, "disabled")]
    tokens = (
        make_token(people.owner, revoked=LONG_AGO),
        make_token(people.owner, expires=LONG_AGO),
        make_token(people.disabled),
        make_token(people.owner, scopes=["namespace:read"]),
        make_token(people.owner, scopes=["namespace:read", "job:read"]),
    )
    return [*browsers, *map(bearer, tokens)]


def asked(stream: str, job: Any) -> dict[str, Any]:
    return {"stream": stream, **({"namespace": "team"} if stream == "jobs" else {"job": job})}


@pytest.mark.invariant("Each stream of the websocket gives each role the answer of the authorisation table.")
@pytest.mark.parametrize(("stream", "expected"), TABLE.items(), ids=TABLE)
def test_everybody_gets_what_the_table_says(people: Personas, written: Writer, stream: str, expected: str) -> None:
    codes: list[str] = []
    everybody = callers(people)

    async def scenario() -> None:
        for headers in everybody:
            async with connected(headers) as socket:
                await socket.ask(op="sub", **asked(stream, written.job.pk))
                codes.append(await socket.answer())

    play(scenario)
    assert " ".join(codes) == expected


@pytest.mark.parametrize("stream", ["logs", "metrics", "status"])
def test_a_job_of_others_is_like_one_that_is_not_there(people: Personas, written: Writer, stream: str) -> None:
    headers = headers_of(people.client("stranger"))

    async def scenario() -> None:
        async with connected(headers) as socket:
            answers = []
            for job in (written.job.pk, NOWHERE):
                await socket.ask(op="sub", stream=stream, job=job)
                answers.append(await socket.frame())
            assert answers[0] == answers[1]
            assert answers[0]["code"] == "not_found"

    play(scenario)


def test_elsewhere_there_is_no_socket(people: Personas) -> None:
    headers = headers_of(people.client("admin"))

    async def scenario() -> None:
        for path in ("/", "/ws/v1/streams", "/ws/v2/stream", "/api/v1/me"):
            async with connected(headers, path) as socket:
                assert await socket.closed() == 4404

    play(scenario)


def test_every_stream_and_every_address_is_in_a_table() -> None:
    assert set(STREAMS) == set(TABLE)
    assert [str(each.pattern) for each in websocket_urlpatterns] == ["ws/v1/stream", "ws/v1/exec", "ws/v1/connect", ""]
