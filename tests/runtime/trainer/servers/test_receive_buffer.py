"""Blocks that are received before the reply that makes them count."""

import numpy as np
import pytest

from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import NOTHING
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op
from runtime.trainer.servers.receive_buffer import ReceiveBuffer

PLACES = Declaration((Tensor("w", (3,), "<f4"), Tensor("b", (3,), "<f4")), SGD(0.5), "sync").blocks(even_table(1))


@pytest.fixture
def values():
    return [np.zeros(3, "f4"), np.zeros(3, "f4")]


def receive(buffer, places, number, early=0, draft=1):
    """Receive blocks of ``number``: ahead of the reply in a draft (``early``), else with it; return these."""
    buffer.began(Header(Op.AHEAD if early else Op.PUSH_PULL, version=draft), {})
    blocks = [block(place, np.full(3, number, "f4")) for place in places]
    for header, payload in blocks:
        buffer.memory(header)[:] = payload
        buffer.arrived(header)
    return blocks


def reply(blocks, ahead, version=5):
    return Message(Header(Op.PUSH_PULL, version=version), {"values": True, "ahead": ahead}, blocks)


def test_blocks_ahead_of_the_reply_and_with_it_make_one_version(values):
    buffer = ReceiveBuffer(PLACES, values)
    receive(buffer, PLACES[:1], 1.0, early=1)
    rest = receive(buffer, PLACES[1:], 2.0)
    assert buffer.take(reply(rest, ahead=1), values)
    assert [value.tolist() for value in values] == [[1.0] * 3, [2.0] * 3]
    assert buffer.version == 5


def test_a_missing_block_leaves_the_values_as_they_are(values):
    buffer = ReceiveBuffer(PLACES, values)
    receive(buffer, PLACES[:1], 1.0, early=1)
    rest = receive(buffer, PLACES[1:], 2.0)
    assert not buffer.take(reply(rest, ahead=2), values)
    assert not any(value.any() for value in values)
    assert buffer.version == NOTHING


def test_blocks_of_a_draft_that_was_replaced_do_not_count(values):
    buffer = ReceiveBuffer(PLACES, values)
    receive(buffer, PLACES, 1.0, early=1, draft=1)
    receive(buffer, PLACES[:1], 2.0, early=1, draft=2)
    assert not buffer.take(reply([], ahead=2), values)
