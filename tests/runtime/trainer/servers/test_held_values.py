"""Values of one server and the version that they are of."""

import numpy as np
import pytest

from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import NOTHING
from runtime.parameters.optimisers import SGD
from runtime.parameters.row_blocks import carries_rows
from runtime.parameters.sharding import even_table
from runtime.protocol.frames import Op
from runtime.trainer.servers.held_values import HeldValues

SIZE = 600_000


@pytest.fixture
def arrays():
    return [np.arange(SIZE, dtype="f4")]


@pytest.fixture
def values(arrays):
    declaration = Declaration((Tensor("w", (SIZE,), "<f4"),), SGD(0.5), "sync")
    held = HeldValues(declaration.blocks(even_table(1)), arrays)
    held.version = 7
    return held


def test_values_of_which_one_block_is_received_have_no_version(values):
    (header, _payload), *_rest = values.to_blocks()
    values.allocate(header)
    assert values.version == NOTHING


def test_blocks_are_received_into_the_arrays_of_the_parameters(values, arrays):
    for header, payload in values.to_blocks():
        values.allocate(header)[:] = bytes(payload.nbytes)
    assert not arrays[0].any()


def test_blocks_to_send_refer_to_the_arrays_without_a_copy(values, arrays):
    arrays[0][:] = 3
    assert {np.frombuffer(payload, "f4")[0] for _header, payload in values.to_blocks()} == {3}
    assert all(header.op is Op.BLOCK and not carries_rows(header) for header, _payload in values.to_blocks())


def test_a_copy_that_the_server_s_memory_does_not_have_leaves_no_version(values):
    assert not values.read(8, waited_for=True), "no memory is shared"
    assert values.version == NOTHING


def test_values_that_are_private_already_stay_of_their_version(values):
    values.keep()
    assert values.version == 7
