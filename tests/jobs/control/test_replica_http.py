"""One request to a server in a replica. The server is user code, so it may answer anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.base import AttemptRef
from jobs.control.errors import Refused, Unreachable
from jobs.control.replica_http import LONGEST, get_json
from tests.jobs.agents import REPLICA, Agent, running_agent, serving

REF = AttemptRef("job", "attempt", 1)
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Agent]:
    with running_agent(tmp_path / REPLICA, "attempt", monkeypatch, settings) as agent:
        yield agent


def got(agent: Agent, response: bytes, seconds: float = 5.0, *, silent: bool = False) -> tuple[Any, bytes]:
    """Return the document that a server with this response gives, and the request that it got."""
    requests: list[bytes] = []

    def serve(link: socket.socket) -> None:
        requests.append(link.recv(65536))
        link.sendall(response)
        if silent:
            link.recv(1)

    with serving(agent.temporary, serve):
        return get_json(REF, REPLICA, "notebook.socket", "/n/team/regatta/activity", seconds), requests[0]


def test_the_object_of_the_response_is_returned(agent: Agent) -> None:
    found, request = got(agent, OK + b'Content-Length: 14\r\n\r\n{"busy": true}')
    assert found == {"busy": True}
    assert request.startswith(b"GET /n/team/regatta/activity HTTP/1.1\r\n")


def test_a_response_without_length_ends_with_its_connection(agent: Agent) -> None:
    assert got(agent, OK + b'\r\n{"busy": false}')[0] == {"busy": False}


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"Content-Length: 2\r\n\r\n[]",
        OK + b"\r\n" + b"[" * 100_000,
        OK + b"Content-Length: 9\r\n\r\n{}",
        b"SSH-2.0-hello\r\n",
        OK + b"X: " + b"y" * 200_000,
        b"",
    ],
)
def test_what_is_no_such_response_is_an_error(agent: Agent, response: bytes) -> None:
    with pytest.raises(Unreachable):
        got(agent, response)


@pytest.mark.invariant("A response of user code is read up to a size and within a time limit.")
def test_an_endless_or_silent_response_is_given_up(agent: Agent) -> None:
    with pytest.raises(Unreachable, match="longer than"):
        got(agent, OK + b"\r\n" + b'"' * (LONGEST + 1))
    (agent.temporary / "notebook.socket").unlink()
    with pytest.raises(Unreachable, match="did not answer in time"):
        got(agent, OK, 0.2, silent=True)


def test_interim_responses_without_end_are_given_up(agent: Agent) -> None:
    def serve(link: socket.socket) -> None:
        with suppress(OSError):
            while True:
                link.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with serving(agent.temporary, serve), pytest.raises(Unreachable, match="did not answer in time"):
        get_json(REF, REPLICA, "notebook.socket", "/", 0.5)


def test_a_replica_without_the_server_refuses(agent: Agent) -> None:
    with pytest.raises(Refused) as refused:
        get_json(REF, REPLICA, "notebook.socket", "/", 5.0)
    assert refused.value.code == "not_listening"
