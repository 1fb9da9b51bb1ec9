"""The position that a trainer offers to the process that takes a server's place."""

import pytest

from runtime.checkpoint.data_position import Position
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import Standing
from runtime.parameters.optimisers import SGD
from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op
from runtime.trainer.servers.rejoin_state import RejoinState

DECLARATION = Declaration((Tensor("w", (3,), "<f4"),), SGD(0.5), "sync")


def recorded(*requests):
    """The state after requests, (op, body, version of the reply, body of the reply), numbered from 1."""
    state = RejoinState()
    for seq, (op, body, version, answer) in enumerate(requests, 1):
        state.record(Message(Header(op, seq=seq), body), Message(Header(op, seq=seq, version=version), answer))
    return state


def test_an_offer_has_the_last_answered_request_and_the_version_that_was_seen():
    fields = recorded((Op.PULL, {}, 3, {"values": True}), (Op.PUSH, {}, 4, {})).offer_fields(DECLARATION, held=3)
    assert fields["offer"] == {"held": 3, "seen": 4, "seq": 2, "begun": -1, "ended": -1}
    assert list(fields) == ["declaration", "offer", "had"]


def test_a_pass_that_is_begun_is_open_until_it_is_ended():
    begin = (Op.BEGIN_PASS, {"pass": 2}, 0, {})
    state = recorded(begin)
    assert (state.is_in_pass, state.offer.begun, state.offer.ended) == (True, 2, 1)
    state = recorded(begin, (Op.END_PASS, {"pass": 2}, 0, {}))
    assert (state.is_in_pass, state.offer.begun, state.offer.ended) == (False, 2, 2)


def test_the_end_of_an_earlier_pass_does_not_reopen_a_later_one():
    state = recorded((Op.END_PASS, {"pass": 5}, 0, {}), (Op.END_PASS, {"pass": 3}, 0, {}))
    assert (state.offer.begun, state.offer.ended) == (5, 5)


def test_positions_of_answered_pushes_are_offered():
    state = recorded((Op.PUSH, {"at": Position(1, 7, 4, done=(2,)).to_json()}, 1, {}))
    had = state.offer_fields(DECLARATION, held=1)["had"]
    assert (had["pass"], had["begun"]) == (1, [[7, 4]])


@pytest.mark.parametrize(("answer", "expected"), [({"values": True}, {100: 9}), ({}, {})])
def test_what_a_version_contains_is_recorded_with_its_values_only(answer, expected):
    standing = Standing(sequences={100: 9})
    state = recorded((Op.PULL, {}, 1, {**answer, "standing": standing.to_json()}))
    assert state.standing.sequences == expected
    assert state.reseed_fields() == {"standing": Standing(sequences=expected).to_json()}
