"""Gradients as blocks: each is made once, however often it is sent."""

import numpy as np
import pytest

from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op
from runtime.trainer.servers.held_values import HeldValues
from runtime.trainer.servers.socket_transport import SocketTransport


class RecordingClient:
    """Keeps what is sent; sends nothing."""

    local = True

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def send_blocks(self, op, blocks):
        self.sent.append(Message(Header(op), {}, blocks))


@pytest.fixture
def client():
    return RecordingClient()


def transport(client, halved=False):
    declaration = Declaration((Tensor("w", (3,), "<f4"), Tensor("b", (3,), "<f4")), SGD(0.5), "sync")
    values = HeldValues(declaration.blocks(even_table(1)), [np.zeros(3, "f4"), np.zeros(3, "f4")])
    return SocketTransport(client, values, halved)


def payloads(blocks):
    return [(header.tensor, bytes(payload)) for header, payload in blocks]


def gradients(w=1.001, b=2.0):
    return [np.full(3, w, "f4"), np.full(3, b, "f4")]


def push(body=None, blocks=()):
    return Message(Header(Op.PUSH_PULL, seq=1), body or {}, blocks)


@pytest.mark.parametrize("halved", [False, True])
def test_a_repeated_push_has_the_same_blocks(client, halved):
    socket = transport(client, halved)
    socket.begin(gradients())
    fields, blocks = socket.make_blocks()
    socket.repeat(push(fields, blocks))
    (again,) = client.sent
    assert payloads(again.blocks) == payloads(blocks)
    assert fields == ({"halved": True} if halved else {})


def test_blocks_sent_ahead_are_left_out_of_the_push_and_are_part_of_its_repetition(client):
    socket = transport(client, halved=True)
    (w, b) = gradients()
    socket.stage(1, b)
    socket.begin([w, b])
    fields, blocks = socket.make_blocks()
    assert [header.tensor for header, _payload in blocks] == [0]
    assert fields == {"staged": True, "halved": True}
    again = socket.repeat(push(fields, blocks))
    assert payloads(again.blocks) == payloads([*blocks, *client.sent[0].blocks])
    assert (again.body["shared"], again.body["staged"]) == (False, False)


def test_a_gradient_that_is_replaced_leaves_no_rounding_error(client):
    plain, replaced = transport(client, halved=True), transport(client, halved=True)
    replaced.stage(0, np.full(3, 1.003, "f4"))
    replaced.unstage(0)
    made = []
    for socket in (plain, replaced):
        for _ in range(3):
            socket.begin(gradients())
            _fields, blocks = socket.make_blocks()
        made.append(payloads(blocks))
    assert made[0] == made[1]


def test_gradients_in_shared_memory_become_blocks_when_their_push_is_repeated(client):
    socket = transport(client)
    socket.begin(gradients())
    again = socket.repeat(push({"shared": True}))
    assert payloads(again.blocks) == [(at, one.tobytes()) for at, one in enumerate(gradients())]
    assert again.body["shared"] is False


def test_a_request_without_gradients_is_repeated_without_blocks(client):
    socket = transport(client)
    socket.begin(())
    assert list(socket.repeat(Message(Header(Op.PULL, seq=1))).blocks) == []
