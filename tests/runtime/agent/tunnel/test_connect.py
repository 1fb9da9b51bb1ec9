"""Streams to servers in a replica, of whole agents over their control socket."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from runtime.agent.control import server
from runtime.control import identity
from runtime.control.connection import Connection
from tests.runtime.agent.callers import KEY, Caller
from tests.runtime.agent.cells import Cell
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

pytestmark = pytest.mark.processes
NAME = "notebook.socket"
# Servers on a Unix socket and on a TCP port. What a client sends comes back in capitals, and "bye" after its last byte.
# A client that sends "flood" gets bytes for as long as it reads.
SERVERS = """
import os, socket, sys, threading
def serve(link):
    try:
        while data := link.recv(65536):
            while data == b"flood":
                link.sendall(bytes(65536))
            link.sendall(data.upper())
        link.sendall(b"bye")
    except OSError:
        pass
    link.close()
def accept(listening):
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
local = socket.socket(socket.AF_UNIX)
local.bind(os.path.join(os.environ["TMPDIR"], "notebook.socket"))
local.listen(300)
port = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, args=(local,), daemon=True).start()
print(port.getsockname()[1], flush=True)
accept(port)
"""


def up(replica: Replica, script: str = SERVERS, **variables: Any) -> Replica:
    replica.start(script, CONTROL_KEY=KEY, **variables)
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and replica.portal.texts("stdout"))
    return replica


@pytest.fixture
def running(replica: Replica) -> Replica:
    return up(replica, SANDBOX="landlock")


def code_of(replica: Replica, **address: Any) -> str:
    """Return the code of the refusal, or "ok"."""
    caller = Caller(replica.directory, call="connect", **address)
    answer = caller.take()
    caller.leave()
    assert isinstance(answer, dict)
    return "ok" if answer == {"ok": True} else str(answer["code"])


def exchange(replica: Replica, **address: Any) -> bytes:
    """Send two pieces and the end, and return all that comes until the other direction ends too."""
    caller = Caller(replica.directory, call="connect", **address)
    assert caller.take() == {"ok": True}
    caller.enter(b"one ")
    caller.until("ONE ")
    caller.enter(b"two ")
    caller.tell(t="end")
    assert caller.is_over()
    assert caller.messages[-1] == {"t": "end"}
    return caller.output


def test_bytes_pass_in_both_directions_and_each_ends_by_itself(running: Replica) -> None:
    assert exchange(running, socket=NAME) == b"ONE TWO bye"
    assert exchange(running, port=int(running.portal.texts("stdout")[0])) == b"ONE TWO bye"


@pytest.mark.parametrize("networked", [True, False])
def test_servers_of_an_isolated_replica_are_reached(cell: Cell, networked: bool) -> None:
    cell.networked = networked
    replica = cell.start(SERVERS, CONTROL_KEY=KEY)
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and cell.portal.texts("stdout"))
    try:
        assert exchange(replica, socket=NAME) == b"ONE TWO bye"
        assert exchange(replica, port=int(cell.portal.texts("stdout")[0])) == b"ONE TWO bye"
    finally:
        replica.end()


@pytest.mark.invariant("A stream reaches the ports of the replica's own network, and none of the machine.")
def test_a_port_of_the_machine_is_not_reached_from_a_network_of_its_own(cell: Cell) -> None:
    cell.networked = True
    replica = cell.start(SERVERS, CONTROL_KEY=KEY)
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and cell.portal.texts("stdout"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as machine:
            assert code_of(replica, port=machine.getsockname()[1]) == "not_listening"
    finally:
        replica.end()


@pytest.mark.parametrize(
    "address",
    [
        {},
        {"socket": "../control.socket"},
        {"socket": ""},
        {"socket": ".hidden"},
        {"socket": "a\0b"},
        {"socket": "x" * 65},
        {"socket": [NAME]},
        {"socket": NAME, "port": 80},
        {"port": 0},
        {"port": 65536},
        {"port": True},
        {"port": "80"},
    ],
)
def test_what_names_no_server_is_refused(running: Replica, address: dict[str, Any]) -> None:
    assert code_of(running, **address) == "invalid"


@pytest.mark.invariant("A stream follows no link and opens nothing but sockets of the replica's temporary directory.")
def test_only_sockets_of_the_temporary_directory_are_opened(running: Replica, tmp_path: Path) -> None:
    temporary = running.directory / "tmp"
    outside = temporary.parent / "outside.socket"
    with socket.socket(socket.AF_UNIX) as listening:
        descriptor = os.open(outside.parent, os.O_PATH)
        listening.bind(f"/proc/self/fd/{descriptor}/{outside.name}")
        os.close(descriptor)
        listening.listen()
        (temporary / "link").symlink_to(outside)
        (temporary / "file").write_text("x")
        os.mkfifo(temporary / "pipe")
        (temporary / "directory").mkdir()
        for name in ("link", "file", "pipe", "directory", "missing"):
            assert code_of(running, socket=name) == "not_listening", name
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_directory_that_is_a_link_is_not_followed(running: Replica, tmp_path: Path) -> None:
    temporary = running.directory / "tmp"
    shutil.move(temporary, tmp_path / "elsewhere")
    temporary.symlink_to(tmp_path / "elsewhere")
    assert code_of(running, socket=NAME) == "not_listening"


@pytest.mark.invariant("Streams have a limit of their own, so that stacks and terminals still work.")
def test_open_streams_take_no_place_of_calls(running: Replica) -> None:
    callers = [Caller(running.directory, call="connect", socket=NAME) for _ in range(server.CALL_LIMIT + 4)]
    assert all(caller.take() == {"ok": True} for caller in callers)
    assert Caller(running.directory, call="ping").take()
    for caller in callers:
        caller.leave()


def test_a_flood_that_is_not_read_waits_in_the_server(running: Replica) -> None:
    caller = Caller(running.directory, call="connect", socket=NAME)
    caller.take()
    caller.enter(b"flood")
    for _ in range(200):
        assert caller.take() != b""
    other = Caller(running.directory, call="connect", socket=NAME)
    assert other.take() == {"ok": True}, "the agent is not blocked"
    other.enter(b"echo")
    other.until("ECHO")
    caller.leave()


def test_a_server_that_does_not_read_ends_with_its_caller(replica: Replica) -> None:
    script = SERVERS.replace("while data := link.recv(65536):", "while data := threading.Event().wait():")
    up(replica, script, SANDBOX="landlock")
    assert replica.process is not None
    tasks = Path(f"/proc/{replica.process.pid}/task")
    before = len(list(tasks.iterdir()))
    caller = Caller(replica.directory, call="connect", socket=NAME)
    caller.take()
    connection: Connection = caller.connection
    for _ in range(3):
        connection.send_bytes(bytes(100_000), 10.0)
    caller.leave()
    until("its threads have ended", lambda: len(list(tasks.iterdir())) <= before)


def test_a_process_of_the_platform_has_no_servers(replica: Replica) -> None:
    replica.directory = replica.directory.parent / "pserver-0"
    up(replica, ROLE="pserver", REPLICA="pserver-0")
    assert code_of(replica, socket=NAME) == "no_user_code"


def test_a_frame_that_is_none_ends_the_stream(running: Replica) -> None:
    caller = Caller(running.directory, call="connect", socket=NAME)
    caller.take()
    caller.tell(t="unknown")
    assert caller.is_over()
