"""A checkpoint has the version that was cut, whatever is changed while it is written, in any order."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.parameters.embedding_tables import Rows, Shelf, Table
from runtime.parameters.optimisers import SGD
from runtime.pserver.state import copy_buffers
from runtime.pserver.state.copy_buffers import Copies
from runtime.pserver.state.cow_snapshot import Snapshot

BLOCKS = 4
NUMBERS = st.integers(0, BLOCKS - 1)


def blocks_of(count=BLOCKS, size=3):
    return [(np.full(size, number, "f4"), np.full(size, -number, "f4")) for number in range(count)]


@pytest.mark.invariant("A checkpoint contains one version, even if the parameters change while it is written.")
@given(st.lists(st.tuples(st.sampled_from(["change", "take", "detach"]), NUMBERS), max_size=30))
def test_every_block_is_as_it_was_when_it_was_cut(course):
    shards = blocks_of()
    snapshot, taken = Snapshot(1, shards, {}), {}
    for what, number in course:
        if what == "change":
            snapshot.touch(number)
            for array in shards[number]:
                array += 100
        elif what == "detach":
            snapshot.detach()
            shards = [tuple(array * 2 for array in block) for block in shards]
        elif number not in taken:
            taken[number] = snapshot.take(number)
    taken |= {number: snapshot.take(number) for number in range(BLOCKS) if number not in taken}
    for number, block in enumerate(blocks_of()):
        assert [array.tolist() for array in taken[number]] == [array.tolist() for array in block]


def test_what_is_taken_first_is_not_copied_again():
    copied = []
    snapshot = Snapshot(1, blocks_of(), {}, copy=lambda array: copied.append(array) or array.copy())
    snapshot.take(0)
    snapshot.touch(0)
    snapshot.touch(1)
    snapshot.touch(1)
    snapshot.take(1)
    assert len(copied) == 4


def test_an_update_and_the_writer_at_the_same_time_copy_every_block_once():
    shards = blocks_of(200, 1000)
    snapshot, taken = Snapshot(1, shards, {}), []

    def write():
        taken.extend(snapshot.take(number) for number in range(200))

    writer = threading.Thread(target=write)
    writer.start()
    for number in reversed(range(200)):
        snapshot.touch(number)
        shards[number][0][:] = 1e6
    writer.join()
    assert [float(values.max()) for values, _state in taken] == list(range(200))


# --- Rows of tables --------------------------------------------------------------------------------------------------
def test_only_the_pieces_whose_rows_are_changed_are_copied():
    table = Table("words", 1 << 17, optimiser=SGD(1.0))  # two rows are a piece
    shelf = Shelf(table)
    shelf.reserve(6)
    shelf.apply(Rows(np.arange(6), np.ones((6, table.dim), "f4")), 1, 1.0)
    pieces, copied = [piece.kept for piece in shelf.pieces()], []
    before = [piece[2].copy() for piece in pieces]
    snapshot = Snapshot(1, [*blocks_of(), *pieces], {}, [(table, 3)], copy=lambda a: copied.append(a) or a.copy())
    shelf.reserve(10)  # new rows arrive, for which the shelf grows
    changed = Rows(np.array([3, 70, 71]), np.ones((3, table.dim), "f4"))
    shelf.apply(changed, 2, 1.0, lambda places: snapshot.touch_rows(table, places))
    assert len(copied) == len(pieces[1])
    for number in range(3):
        np.testing.assert_array_equal(snapshot.take(BLOCKS + number)[2], before[number])


def test_a_table_that_came_after_the_cut_is_not_in_it():
    snapshot = Snapshot(1, blocks_of(), {})
    snapshot.touch_rows(Table("later", 4), np.array([0, 1]))
    assert len(snapshot) == BLOCKS


# --- Memory ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, 100, 1 << 20])
def test_copies_are_separate_arrays_inside_and_outside_the_buffer(size):
    buffer = Copies(size)
    arrays = [np.arange(20.0) + number for number in range(3)]
    made = [buffer.copy(array) for array in arrays]
    for array in arrays:
        array[:] = 0
    assert [copy[0] for copy in made] == [0.0, 1.0, 2.0]
    assert all(copy.dtype == np.float64 and copy.shape == (20,) for copy in made)


def test_a_cleared_buffer_is_used_again():
    buffer = Copies(1 << 10)
    first = buffer.copy(np.ones(100, "f4"))
    buffer.clear()
    assert buffer.copy(np.zeros(100, "f4")).ctypes.data == first.ctypes.data


def test_a_process_without_memory_for_it_copies_when_it_has_to(monkeypatch):
    monkeypatch.setattr(copy_buffers, "headroom", lambda: 10)
    assert Copies(1 << 20).copy(np.ones(2, "f4")).tolist() == [1.0, 1.0]
