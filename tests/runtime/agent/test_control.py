"""The control channel of whole agents, over their Unix socket."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime import contract
from runtime.agent.control import server
from runtime.agent.control.calls import Call
from runtime.agent.control.server import ControlServer
from runtime.agent.settings import Settings
from runtime.control import frames, identity
from runtime.control.connection import Closed, Connection
from runtime.control.frames import Frame, Kind
from runtime.protocol.proof import Claim, Unproven
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

KEY = b"the key of the attempt"
ENDLESS = "import time\nprint('up', flush=True)\ntime.sleep(600)"
SECONDS = 10.0


def linked(directory: Path) -> socket.socket:
    """Return a socket that is connected to the agent of the directory."""
    place = os.open(directory, os.O_PATH)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(identity.short_address(place))
    finally:
        os.close(place)
    return link


def proven(directory: Path, key: bytes = KEY, replica: str = "trainer-0") -> Connection:
    connection = Connection(linked(directory))
    claim = Claim(key, identity.name_of("attempt", replica))
    connection.send_document(claim.hello(), SECONDS)
    connection.send_document(claim.prove(connection.receive_document(SECONDS)), SECONDS)
    return connection


def called(directory: Path, request: dict[str, Any], replica: str = "trainer-0") -> dict[str, Any]:
    connection = proven(directory, replica=replica)
    connection.send_document(request, SECONDS)
    answer = connection.receive_document(SECONDS)
    connection.close()
    return answer


@pytest.fixture
def running(replica: Replica) -> Replica:
    replica.start(ENDLESS, CONTROL_KEY=KEY.decode())
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and replica.portal.texts("stdout"))
    return replica


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


# --- Whole agents ----------------------------------------------------------------------------------------------------
@pytest.mark.processes
def test_an_agent_answers_who_it_is(running: Replica) -> None:
    answer = called(running.directory, {"call": "ping"})
    assert answer == {"ok": True, "replica": "trainer-0", "start_number": 1, "release": contract.RELEASE}


@pytest.mark.processes
def test_only_the_agents_user_may_open_the_socket(running: Replica) -> None:
    assert stat.S_IMODE((running.directory / identity.SOCKET_FILE).stat().st_mode) == 0o600


@pytest.mark.processes
def test_a_directory_with_a_path_longer_than_a_socket_address_is_no_obstacle(replica: Replica) -> None:
    replica.directory = replica.directory / ("long" * 30)
    replica.start(ENDLESS, CONTROL_KEY=KEY.decode())
    until("it runs", lambda: replica.portal.texts("stdout"))
    assert called(replica.directory, {"call": "ping"})["ok"]


@pytest.mark.processes
def test_the_key_is_not_in_the_environment_of_user_code(replica: Replica) -> None:
    replica.run("import os\nprint(sorted(name for name in os.environ if 'CONTROL' in name))", CONTROL_KEY="key")
    assert replica.portal.texts("stdout") == ["[]"]


@pytest.mark.processes
def test_the_channel_ends_with_the_process(replica: Replica) -> None:
    replica.run("print('done')", CONTROL_KEY="key")
    with pytest.raises(ConnectionRefusedError):
        linked(replica.directory)


@pytest.mark.processes
def test_silent_connections_do_not_delay_output_and_end(running: Replica) -> None:
    silent = [linked(running.directory) for _ in range(2 * server.UNPROVEN_LIMIT)]
    assert called(running.directory, {"call": "ping"})["ok"], "the portal gets through"
    running.ask_to_stop()
    assert running.wait() == contract.EXIT_OK
    for each in silent:
        each.close()


# --- The server alone ------------------------------------------------------------------------------------------------
class Subject:
    """A control server in this process, with its own calls."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: list[ControlServer] = []

    def serve(self, calls: dict[str, Callable[[Call], Any]], proof_seconds: float = SECONDS) -> Path:
        from runtime.agent import settings

        configuration = settings.read(
            {
                contract.JOB_ID: "job", contract.ATTEMPT_ID: "attempt", contract.ROLE: "trainer",
                contract.INGEST_URL: "", contract.INGEST_TOKEN: "", contract.COORDINATION: "",
                contract.REPLICA_DIR: str(self.directory), contract.CONTROL_KEY: KEY.decode(),
            }
        )  # fmt: skip
        listening = server.listener(configuration)
        assert listening is not None
        child: Any = None
        self.servers.append(ControlServer(configuration, child, listening, calls, proof_seconds))
        self.servers[-1].start()
        return self.directory


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    subject = Subject(tmp_path)
    yield subject
    for each in subject.servers:
        each.close()


def test_a_peer_with_another_key_learns_only_that_the_agent_has_another(subject: Subject) -> None:
    subject.serve({})
    with pytest.raises(Unproven):
        proven(subject.directory, key=b"another key")


def test_a_wrong_proof_closes_the_connection_before_any_call(subject: Subject) -> None:
    calls: list[str] = []
    subject.serve({"ping": lambda call: calls.append("ping")})
    connection = Connection(linked(subject.directory))
    connection.send_document(Claim(b"guess", "any").hello(), SECONDS)
    connection.receive(SECONDS)
    connection.send_document({"proof": "00" * 32}, SECONDS)
    connection.send_document({"call": "ping"}, SECONDS)
    with pytest.raises(Closed):
        connection.receive(SECONDS)
    assert not calls


def test_a_proof_for_another_replica_of_the_attempt_is_refused(subject: Subject) -> None:
    subject.serve({})
    with pytest.raises(Unproven):
        proven(subject.directory, replica="trainer-1")


def test_a_peer_that_is_silent_is_closed_after_the_time_limit(subject: Subject) -> None:
    link = linked(subject.serve({}, proof_seconds=0.05))
    link.settimeout(SECONDS)
    assert link.recv(1) == b""


def test_one_silent_peer_above_the_limit_ends_the_oldest(subject: Subject) -> None:
    subject.serve({})
    oldest, *others = [linked(subject.directory) for _ in range(server.UNPROVEN_LIMIT + 1)]
    oldest.settimeout(SECONDS)
    assert oldest.recv(1) == b""
    for each in others:
        each.close()


def test_calls_above_the_limit_are_refused_as_busy(subject: Subject) -> None:
    subject.serve({"wait": lambda call: call.connection.receive(SECONDS)})
    held = [proven(subject.directory) for _ in range(server.CALL_LIMIT)]
    for each in held:
        each.send_document({"call": "wait"}, SECONDS)
    until("all are admitted", lambda: subject.servers[0]._running[False] == server.CALL_LIMIT)
    assert called(subject.directory, {"call": "wait"})["code"] == "busy"
    for each in held:
        each.close()


def test_a_frame_before_the_proof_is_short(subject: Subject) -> None:
    link = linked(subject.serve({}))
    link.settimeout(SECONDS)
    link.sendall((2000).to_bytes(4, "big") + b"\x00")
    assert link.recv(1) == b""


@pytest.mark.parametrize("request_", [{}, {"call": "missing"}, {"call": ["ping"]}])
def test_a_call_that_the_agent_does_not_know_is_answered(subject: Subject, request_: dict[str, Any]) -> None:
    subject.serve({})
    assert called(subject.directory, request_)["code"] == "unknown_call"


def test_an_error_of_a_handler_is_answered_without_its_text(subject: Subject) -> None:
    def broken(call: Call) -> None:
        raise ValueError("a secret")

    subject.serve({"broken": broken})
    assert called(subject.directory, {"call": "broken"}) == {
        "ok": False, "code": "failed", "message": "The agent could not answer: ValueError.",
    }  # fmt: skip


def test_a_handler_may_use_the_connection_as_a_stream_in_both_directions(subject: Subject) -> None:
    def echo(call: Call) -> None:
        for _ in range(3):
            call.connection.send(call.connection.receive(SECONDS), SECONDS)

    subject.serve({"echo": echo})
    connection = proven(subject.directory)
    connection.send_document({"call": "echo"}, SECONDS)
    sent = [Frame(Kind.BYTES, b"a" * frames.PAYLOAD_LIMIT), Frame(Kind.BYTES, b""), Frame(Kind.JSON, b"{}")]
    received = []
    for each in sent:
        connection.send(each, SECONDS)
        received.append(connection.receive(SECONDS))
    assert received == sent
    with pytest.raises(Closed):
        connection.receive(SECONDS)


def test_an_agent_in_a_pod_notices_that_the_node_of_its_caller_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contract, "own_address", lambda: "127.0.0.1")
    given = SimpleNamespace(control_key=KEY, control_port=free_port())
    listening = server.listener(cast(Settings, given))
    assert listening is not None
    with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
