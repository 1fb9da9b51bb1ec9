"""The websocket to a port in a replica, through a real stream, and ``regatta port-forward`` over it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.lifecycle.states import JobState, ReplicaState
from jobs.live import connect_consumer as consumer
from jobs.models import Job, Replica
from rbac import services
from rbac.models import AuditEntry, Role
from regatta.commands.forward import Forwarder, ports_of
from regatta.exec_socket import PortSocket
from tests.factories import make_attempt, make_job, make_token
from tests.jobs.agents import REPLICA, running_agent
from tests.jobs.live.notebooks.conftest import running_portal
from tests.jobs.live.test_exec import EXPECTED, Terminal, callers
from tests.jobs.sockets import play
from tests.personas import Personas

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


class Connection(Terminal):
    def __init__(self, headers: Any, job: Any, **query: Any) -> None:
        super().__init__(headers, job, **query)
        self._link.scope["path"] = "/ws/v1/connect"


@pytest.fixture
def job(people: Personas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Job]:
    job = make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)
    attempt = make_attempt(job)
    Replica.objects.create(attempt=attempt, name=REPLICA, role="trainer", index=0, state=ReplicaState.REGISTERED)
    with running_agent(tmp_path / REPLICA, str(attempt.pk), monkeypatch, settings):
        yield job


@pytest.fixture
def port() -> Iterator[int]:
    """A server that sends back in capitals what it gets, and "bye" after the end."""

    def serve(link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            while data := link.recv(65536):
                link.sendall(data.upper())
            link.sendall(b"bye")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.invariant("Only a developer or owner of the namespace reaches a port in a replica.")
def test_everybody_gets_what_the_table_says(people: Personas, job: Job, port: int) -> None:
    outcomes: list[str] = []
    everybody = callers(people)

    async def scenario() -> None:
        for headers in everybody:
            connection = Connection(headers, job.pk, port=port)
            await connection.open()
            outcomes.append(await connection.outcome())
            await connection.leave()

    play(scenario)
    assert " ".join(outcomes) == EXPECTED
    opened = AuditEntry.objects.filter(action="port.open")
    assert {entry.detail["port"] for entry in opened} == {port}
    assert opened.count() == EXPECTED.split().count("ready")


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ({"port": 0}, "validation_failed:4400"),
        ({"port": 65536}, "validation_failed:4400"),
        ({"port": "x"}, "validation_failed:4400"),
        ({"port": 1}, "not_listening:4400"),
        ({"port": 1, "replica": "trainer-7"}, "not_found:4400"),
    ],
)
def test_only_a_port_that_is_listened_on_is_reached(
    people: Personas, job: Job, query: dict[str, Any], outcome: str
) -> None:
    headers = callers(people)[2]

    async def scenario() -> None:
        connection = Connection(headers, job.pk, **query)
        await connection.open()
        assert await connection.outcome() == outcome
        await connection.leave()

    play(scenario)


@pytest.mark.invariant("A lost right to a port in a replica closes its socket within 5 seconds.")
def test_a_lost_right_closes_the_connection(people: Personas, job: Job, port: int) -> None:
    from tests.jobs.live.frames import do

    assert consumer.RECHECK_SECONDS <= 4
    headers = callers(people)[2]

    def demote() -> None:
        services.set_member(
            actor=people.owner, namespace_name="team", username=people.developer.username, role=Role.VIEWER
        )

    async def scenario() -> None:
        connection = Connection(headers, job.pk, port=port)
        await connection.open()
        assert (await connection.next())["t"] == "ready"
        await do(demote)
        assert (await connection.next())["code"] == "forbidden"
        assert await connection.next() == 4410
        await connection.leave()

    play(scenario)


# --- The command -----------------------------------------------------------------------------------------------------
def test_the_command_forwards_connections_with_their_ends(people: Personas, job: Job, port: int, settings: Any) -> None:
    portal = socket.create_server(("127.0.0.1", 0))
    settings.PORT = portal.getsockname()[1]
    with running_portal(portal), socket.create_server(("127.0.0.1", 0)) as listening:
        forwarder = Forwarder(f"http://127.0.0.1:{settings.PORT}", make_token(people.developer), str(job.pk), "", port)
        threading.Thread(target=forwarder.serve, args=(listening,), daemon=True).start()
        for _ in range(3):
            with socket.create_connection(listening.getsockname(), 20) as link:
                link.sendall(b"hello " * 20_000)
                link.shutdown(socket.SHUT_WR)
                answer = b""
                while data := link.recv(65536):
                    answer += data
                assert answer == b"HELLO " * 20_000 + b"bye"
        listening.shutdown(socket.SHUT_RDWR)


def test_the_ports_of_the_command_are_read() -> None:
    assert [ports_of(text) for text in ("80", "8080:80", ":80")] == [(80, 80), (8080, 80), (0, 80)]
    for text in ("", "x", "0", "65536", "1:", "a:1", "80:x"):
        with pytest.raises(Exception, match="no port"):
            ports_of(text)
    assert PortSocket.path == "/ws/v1/connect"
