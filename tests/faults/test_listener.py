"""The witness of steps records what the check of I11 needs, and the check finds a trainer that mixes two servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.contract import Member
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.client import Client
from runtime.protocol.concurrent_exchange import Exchange
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.trainer.params import Params
from runtime.trainer.servers import server_store
from runtime.trainer.servers.server_connection import ServerConnection
from runtime.trainer.servers.server_store import ServerStore
from tests.faults import invariants
from tests.faults.listener import ConnectionWitness
from tests.faults.recording.history import Event

FIRST, SECOND = 5, 7  # incarnations


class Memory:
    """A history in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, kind: str, **facts: Any) -> None:
        self.events.append(Event(float(len(self.events)), "trainer-0.1", kind, facts))


@pytest.fixture
def servers():
    """Two processes that both act as server 0."""
    running = [ShardServer(Shard(0, even_table(1), 1)) for _ in (FIRST, SECOND)]
    for server, incarnation in zip(running, (FIRST, SECOND), strict=True):
        server.fence(incarnation)
        server.start()
        server.change_members([Member("trainer", 0, 100)])
    yield running
    for server in running:
        server.close()


def train(server: ShardServer, expected: int) -> Params:
    client = Client(server.address, name="parameter server 0", incarnation=100, expected=expected)
    params = Params({"w": np.zeros(3, "f4")}, ServerStore([client], share=False), SGD(1.0))
    for _ in range(3):
        params.push_pull({"w": np.ones(3, "f4")})
    return params


def test_a_trainer_records_which_server_answered_each_step(servers, monkeypatch):
    memory = Memory()
    ConnectionWitness(memory).watch(monkeypatch)
    train(servers[0], FIRST)
    answered = [event for event in memory.events if event.kind == "answered"]
    assert len({event["step"] for event in answered}) == len(answered) >= 3
    assert {(event["server"], event["incarnation"]) for event in answered} == {("parameter server 0", FIRST)}
    assert invariants.steps_meet_one_incarnation(memory.events) == []


def test_a_trainer_that_takes_its_values_from_another_process_than_its_push_is_found(servers, monkeypatch):
    first, second = servers
    train(second, SECOND)

    class TakesValuesElsewhere(ServerConnection):
        def _receive(self, message: Message, exchange: Exchange | None) -> Message:
            reply = super()._receive(message, exchange)
            if message.head.op is Op.PUSH_PULL:
                self._client.redirect(second.address, SECOND)
                self._client.follow()
                self._client.request(Op.PULL, allocate=self._values.allocate)
            return reply

    monkeypatch.setattr(server_store, "ServerConnection", TakesValuesElsewhere)
    memory = Memory()
    ConnectionWitness(memory).watch(monkeypatch)
    train(first, FIRST)
    assert "heard 5 and 7 of parameter server 0 in one step" in invariants.steps_meet_one_incarnation(memory.events)[0]


def test_a_trainer_that_records_nothing_is_found():
    assert invariants.steps_meet_one_incarnation([Event(0.0, "trainer-0.1", "pulled")])
