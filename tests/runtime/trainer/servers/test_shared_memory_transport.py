"""Memory that is offered to a server, and values that are read from it."""

import numpy as np
import pytest

from runtime.errors import Lost
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op
from runtime.trainer.servers.gradient_staging import Staging
from runtime.trainer.servers.held_values import HeldValues
from runtime.trainer.servers.shared_memory_transport import COPIES, SharedMemoryTransport

DECLARATION = Declaration((Tensor("w", (3,), "<f4"),), SGD(0.5), "sync")


class Server:
    """A client of a server that answers ``answer`` to offers of memory, or raises it; records requests."""

    secret = b""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def call(self, op, body):
        self.requests.append(op)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def request(self, op, body=None, allocate=None):
        self.requests.append((op, bool(body)))
        return Message(Header(op, version=9), {"values": True})


@pytest.fixture
def staging():
    memory = Staging(DECLARATION.layout)
    yield memory
    memory.close()


def transport(server):
    return SharedMemoryTransport(server, HeldValues(DECLARATION.blocks(even_table(1)), [np.zeros(3, "f4")]))


def test_a_server_that_cannot_share_memory_is_not_asked_again(staging):
    memory = transport(server := Server({"shared": False}))
    assert not memory.share(staging), "gradients need not be staged"
    memory.open()
    assert server.requests == [Op.SHARE]
    assert not memory.is_open


def test_a_server_that_is_lost_meanwhile_is_offered_the_memory_again(staging):
    memory = transport(server := Server(Lost("gone")))
    assert memory.share(staging), "gradients are staged: its successor may read them"
    memory.open()
    assert server.requests == [Op.SHARE, Op.SHARE]


def test_nothing_is_offered_before_there_are_staged_gradients():
    transport(server := Server({"shared": True})).open()
    assert server.requests == []


def test_values_that_change_during_every_copy_are_requested_in_the_end():
    memory = transport(server := Server({}))
    reply = memory.read_values(Message(Header(Op.PULL, version=8), {"values": True}), waited_for=False)
    assert server.requests == [(Op.PULL, True)] * COPIES + [(Op.PULL, False)]
    assert reply.head.version == 9
