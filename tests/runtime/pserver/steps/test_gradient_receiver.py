"""A step is returned only whole, finite, and in the shard's order."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import Refused, WireError
from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.embedding_tables import Tables
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.protocol.connection import Block
from runtime.protocol.frames import Header, Op
from runtime.protocol.shared_memory import NOT_SHARED
from runtime.pserver.state.parameter_state import ParameterState
from runtime.pserver.steps.gradient_receiver import GradientReceiver

TENSORS = (Tensor("a", (5,), "<f4"), Tensor("b", (3,), "<f8"))
HEAD = Header(Op.PUSH, seq=2, version=0)


@pytest.fixture
def state() -> ParameterState:
    state = ParameterState(Tables(0, even_table(1)))
    declaration = Declaration(TENSORS, SGD(1.0))
    state.allocate(declaration, tuple(declaration.blocks(even_table(1))))
    return state


@pytest.fixture
def receiver(state: ParameterState) -> GradientReceiver:
    return GradientReceiver(state)


def blocks(state: ParameterState, value: float = 1.0) -> list[Block]:
    return [
        block(place, np.full_like(parameter, value))
        for place, parameter in zip(state.places, state.parameters, strict=True)
    ]


def receive(receiver: GradientReceiver, some: list[Block]) -> None:
    for header, payload in some:
        receiver.allocate(header)[:] = memoryview(payload).cast("B")
        if (coming := receiver.arrived(header)) is not None:
            coming.arrived += 1


def test_a_step_that_arrives_in_order_is_valid_block_by_block(
    receiver: GradientReceiver, state: ParameterState
) -> None:
    coming = receiver.begin(HEAD, {"samples": 1})
    assert coming is not None
    some = blocks(state)
    receive(receiver, some)
    assert (receiver.coming, coming.arrived) == (coming, 2)
    assert receiver.step({}, some, {}) is coming.gradients


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (Op.PULL, {"samples": 1}),
        (Op.PUSH, {}),
        (Op.PUSH, {"samples": 0}),
        (Op.PUSH, {"samples": 1, "shared": True}),
        (Op.PUSH, {"samples": 1, "staged": True}),
    ],
)
def test_only_a_step_that_comes_whole_over_the_connection_is_begun(
    receiver: GradientReceiver, op: Op, body: dict[str, object]
) -> None:
    assert receiver.begin(HEAD._replace(op=op), body) is None


def test_blocks_out_of_order_are_checked_as_a_whole(receiver: GradientReceiver, state: ParameterState) -> None:
    receiver.begin(HEAD, {"samples": 1})
    some = blocks(state)[::-1]
    receive(receiver, some)
    assert receiver.coming is None
    assert [array.tolist() for array in receiver.step({}, some, {})] == [[1.0] * 5, [1.0] * 3]


def test_a_gradient_that_is_not_finite_is_refused(receiver: GradientReceiver, state: ParameterState) -> None:
    receiver.begin(HEAD, {"samples": 1})
    some = blocks(state, np.nan)
    receive(receiver, some)
    assert receiver.coming is None
    with pytest.raises(Refused) as refused:
        receiver.step({}, some, {})
    assert refused.value.code == Outcome.NOT_FINITE


def test_a_missing_block_is_refused(receiver: GradientReceiver, state: ParameterState) -> None:
    some = blocks(state)[:1]
    receive(receiver, some)
    with pytest.raises(Refused) as refused:
        receiver.step({}, some, {})
    assert refused.value.code == "bad_step"


def test_staged_blocks_complete_one_step_only(receiver: GradientReceiver, state: ParameterState) -> None:
    first, second = blocks(state)
    receive(receiver, [first, second])
    receiver.stage([first])
    assert len(receiver.step({"staged": True}, [second], receiver.take_staged())) == 2
    with pytest.raises(Refused) as refused:
        receiver.step({"staged": True}, [second], receiver.take_staged())
    assert refused.value.code == NOT_SHARED


def test_gradients_in_shared_memory_are_used_where_they_are(receiver: GradientReceiver) -> None:
    with pytest.raises(Refused):
        receiver.step({"shared": True}, [], {})
    mapped = [np.ones(5, "f4"), np.ones(3, "f8")]
    receiver.use_mapped(mapped)
    assert receiver.step({"shared": True}, [], {}) is mapped


def test_a_block_of_another_server_has_no_memory(receiver: GradientReceiver, state: ParameterState) -> None:
    (header, _payload), *_others = blocks(state)
    with pytest.raises(WireError):
        receiver.allocate(header._replace(tensor=9))
