"""Replicas are on a network of their attempt, and the machine is not on it."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

import pytest

from runtime import contract
from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.agent.cells import Cell, processes_named
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

pytestmark = pytest.mark.processes


def test_the_machine_is_out_of_reach_from_a_network_of_its_own(cell: Cell) -> None:
    env = {"PORT": cell.portal.url.rpartition(":")[2], "HOST": own_address()}
    outcome = cell.run("network", env=env, networked=True)
    assert outcome.output.splitlines() == ["HELD", "loopback works"]
    assert outcome.report["code"] == 0
    control = cell.control("network", **env)
    assert all(attack in control for attack in (f"127.0.0.1 {env['PORT']}", "abstract socket"))


def own_address() -> str:
    """Return an address of the machine other than its loopback device's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        try:
            link.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.3"
        return str(link.getsockname()[0])


def test_replicas_of_an_attempt_reach_each_other_on_its_network_also_after_a_restart(cell: Cell) -> None:
    """A parameter server runs outside the isolation, and trainers within."""
    cell.networked = True
    serve = """
    import os, socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        print("port", server.getsockname()[1], flush=True)
        while True:
            server.accept()[0].sendall(os.environ["ANSWER"].encode())
    """
    visit = """
    import os, socket
    answer = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 10).recv(99).decode()
    assert answer == os.environ["ANSWER"]
    """
    env = {"ANSWER": uuid.uuid4().hex}
    server = cell.start(serve, name="pserver-0", env=env, ROLE="pserver", REPLICA="pserver-0", SANDBOX="none")
    try:
        until("it listens", lambda: any(text.startswith("port ") for text in cell.portal.texts()))
        (port,) = (text.split()[1] for text in cell.portal.texts() if text.startswith("port "))
        assert answer_of(int(port)) != env["ANSWER"].encode()
        for start_number in range(2):
            trainer = cell.start(visit, name=f"trainer-{start_number}", env={**env, "PORT": port})
            trainer.wait(30)
            trainer.end()
            assert trainer.state is not None
            assert trainer.state.code == 0
    finally:
        server.end()


def answer_of(port: int) -> bytes:
    """Return the first bytes of the server at this port of the machine, or nothing without a server.

    Other programs of the machine may have chosen the same number.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as link:
            return link.recv(99)
    except OSError:
        return b""


def test_a_replica_whose_network_others_cannot_join_is_ended(cell: Cell) -> None:
    cell.networked = True
    replica = cell.start("import time; print('ready', flush=True); time.sleep(300)")
    try:
        cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
        (keeper,) = keepers(replica.directory.parent)
        os.kill(keeper, 9)
        replica.wait(30)
        assert cell.portal.last_report()["code"] == contract.EXIT_RESTART
        assert mentions(cell.portal.last_report()["why"], messages.NETWORK_PROCESS_ENDED)
    finally:
        replica.end()


def test_the_process_that_keeps_a_network_ends_after_the_last_agent(cell: Cell) -> None:
    cell.networked = True
    replica = cell.start("import time; print('ready', flush=True); time.sleep(300)")
    cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
    assert len(keepers(replica.directory.parent)) == 1
    replica.end()
    until("it ends too", lambda: not keepers(replica.directory.parent), 10)


def keepers(attempt: Path) -> list[int]:
    return [pid for pid in processes_named(str(attempt)) if b"isolation.network" in command_of(pid)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_an_agent_without_the_network_of_its_attempt_starts_nothing(replica: Replica) -> None:
    replica.start("print('ran', flush=True)", NETWORK="user")
    assert replica.wait() == contract.EXIT_ERROR
    assert "REGATTA_NETWORK_FDS" in replica.complaint()
    assert replica.portal.texts() == []
