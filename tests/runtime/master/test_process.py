"""The master process, ``python -m runtime.master``, with this test as its agent."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.coordination.base import Lease
from runtime.coordination.embedded import EmbeddedStore
from runtime.master.messages import JobDone, Task
from runtime.messages import from_json
from runtime.messages import training as messages
from runtime.trainer.tasks.task_client import TaskClient
from tests.messages import mentions
from tests.waiting import until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[3]
SECRET = "0123456789abcdef" * 4


class AgentOfTest:
    """Starts the master, registers it and sends it the members."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self._link, inner = socket.socketpair()
        self._link.settimeout(20)
        self._lines = self._link.makefile("r")
        self._revision = 0
        self._index = int(environment.get(contract.INDEX, "0"))
        self.lease: Lease | None = None
        self.store = EmbeddedStore(directory / "store.db")
        values = {
            contract.JOB_ID: "j",
            contract.WIRE_SECRET: SECRET,
            contract.ROLE: contract.MASTER,
            contract.DATASET: "public/diabetes",
            contract.PASSES: "2",
            contract.COORDINATION: f"sqlite:///{directory}/store.db",
            contract.AGENT_FD: str(inner.fileno()),
            **environment,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.master"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **values},
            pass_fds=[inner.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        inner.close()

    def receive(self, op: str) -> dict[str, Any]:
        while (message := json.loads(self._lines.readline()))["op"] != op:
            pass
        return message

    def register(self, ttl: float = 60.0) -> contract.Member:
        address = self.receive(contract.HELLO)["address"]
        self.lease = self.store.grant(ttl)
        entry = self.store.put(contract.member_key("j", 1, contract.MASTER, self._index), b"{}", lease=self.lease)
        return contract.Member(contract.MASTER, self._index, entry.create_revision, address)

    def report(self, *members: contract.Member) -> None:
        self._revision += 1
        listed = [member.to_json() for member in members]
        message = {"op": contract.MEMBERS, "revision": self._revision, "members": listed}
        self._link.sendall(json.dumps(message).encode() + b"\n")

    def fence(self) -> None:
        self._link.sendall(json.dumps({"op": contract.FENCED, "why": "The lease is lost."}).encode() + b"\n")

    def kill(self, *, with_agent: bool = False) -> None:
        """Kill -9. A running agent deletes the registration; the registration of a killed one expires."""
        self.process.kill()
        self.process.wait()
        self.lease.release() if with_agent else self.lease.revoke()

    def end(self) -> tuple[int, str]:
        output, _none = self.process.communicate(timeout=20)
        return self.process.returncode, output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._lines.close()
        self._link.close()
        self.store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., AgentOfTest]]:
    agents: list[AgentOfTest] = []

    def start(**environment: str) -> AgentOfTest:
        agents.append(AgentOfTest(tmp_path, **environment))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


def test_an_agent_that_is_gone_before_it_has_registered_it_may_start_it_again(start):
    agent = start()
    agent.receive(contract.HELLO)
    agent._link.shutdown(socket.SHUT_RDWR)
    assert agent.end()[0] == contract.EXIT_RESTART


def test_it_hands_out_all_tasks_and_ends_when_its_trainers_have_left(start):
    agent = start()
    master, trainer = agent.register(), contract.Member(contract.TRAINER, 0, 77)
    agent.report(master, trainer)
    client = TaskClient(master.address, 0, 77, secret=SECRET.encode())
    records = 0
    while not isinstance(answer := client.next_task(), JobDone):
        if isinstance(answer, Task):
            records += sum(chunk.records for chunk in answer.chunks)
            client.done(answer)
    client.close()
    agent.report(master)
    code, output = agent.end()
    assert (code, records) == (contract.EXIT_OK, 2 * 353)
    assert "Dataset public/diabetes: 353 records in 15 tasks." in output
    assert re.search(r"(?m)^Pass 1 of 2 done in [\d.]+ s: 353 records, [\d,]+ records/s, 1 trainer\.$", output)
    assert messages.ALL_PASSES_DONE(count=2) in output


def test_joins_and_leaves_are_on_the_timeline(start):
    agent = start()
    master = agent.register()
    agent.report(master, contract.Member(contract.TRAINER, 0, 77))
    assert from_json(agent.receive(contract.EVENT)["text"]) == messages.TRAINER_JOINED(trainer="trainer-0")
    agent.report(master)
    assert from_json(agent.receive(contract.EVENT)["text"]) == messages.TRAINER_LEFT(trainer="trainer-0")


def test_a_replacement_master_keeps_the_tasks_assigned_to_each_trainer(start):
    first = start(**{contract.TRAINERS: "2"})
    trainers = [contract.Member(contract.TRAINER, index, 77 + index) for index in range(2)]
    master = first.register()
    first.report(master, *trainers)
    clients = [
        TaskClient(master.address, index, 77 + index, master=master.incarnation, secret=SECRET.encode())
        for index in range(2)
    ]
    had = [client.next_task() for client in clients]
    first.kill()
    second = start(**{contract.TRAINERS: "2"})
    master = second.register()
    second.report(master, *trainers)
    for client in clients:
        client.move(master.address, master.incarnation)
    assert [client.done(task) for client, task in zip(clients, had, strict=True)] == [True, True]
    assert [client.next_task().task_id for client in clients] == [2, 3]


@pytest.mark.timed
def test_a_standby_takes_over_within_the_ttl_when_master_and_agent_are_killed(start):
    ttl = 1.0
    first, second = start(), start(**{contract.INDEX: "1"})
    one, other = first.register(ttl), second.register()
    trainer = contract.Member(contract.TRAINER, 0, 77)
    for agent in (first, second):
        agent.report(one, other, trainer)
    client = TaskClient(one.address, 0, 77, master=one.incarnation, secret=SECRET.encode())
    task = client.next_task()
    first.kill(with_agent=True)
    killed = time.monotonic()
    until("its place is free", lambda: not second.store.get(contract.member_key("j", 1, contract.MASTER, 0)), 20)
    second.report(other, trainer)
    client.move(other.address, other.incarnation)
    assert client.done(task)
    assert time.monotonic() < killed + ttl + 2.0
    assert client.next_task().task_id == task.task_id + 1


def test_a_standby_master_exits_on_sigterm(start):
    first, second = start(), start(**{contract.INDEX: "1"})
    members = [first.register(), second.register()]
    second.report(*members)
    assert second.process.stdout.readline().startswith("Dataset")
    assert second.process.stdout.readline() == "master-0 serves; this master stands by.\n"
    second.process.send_signal(signal.SIGTERM)
    assert second.end()[0] == contract.EXIT_RESTART


def test_an_unknown_dataset_is_a_message_and_exit_1(start):
    code, output = start(**{contract.DATASET: "public/digit"}).end()
    assert code == contract.EXIT_ERROR
    assert "There is no dataset 'public/digit'. Did you mean public/digits" in output


def test_it_leaves_on_sigterm_and_may_be_started_again_while_passes_are_left(start):
    agent = start()
    agent.report(agent.register())
    until("it leads", lambda: agent.store.get("/regatta/j/1/master/head"))
    agent.process.send_signal(signal.SIGTERM)
    assert agent.end()[0] == contract.EXIT_RESTART


def test_without_its_lease_it_stops_and_requests_a_restart(start):
    agent = start()
    agent.report(agent.register())
    agent.fence()
    code, output = agent.end()
    assert (code, "The lease is lost." in output) == (contract.EXIT_RESTART, True)


def test_a_store_that_cannot_be_opened_is_a_message_and_a_restart_request():
    environment = {"PATH": os.environ["PATH"], contract.COORDINATION: "sqlite:////nowhere/at/all.db"}
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.master"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, mentions(ended.stdout, messages.STORE_NOT_OPENED)) == (contract.EXIT_RESTART, True)
