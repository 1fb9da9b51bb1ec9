"""The stored state of a queue, and its size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.coordination.base import Committed, Compare, Conflict, Put, Versioned
from runtime.master.messages import Trainer
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Behind, Ledger, Lost, lead
from runtime.master.task_table import TaskTable
from runtime.master.types import Plan
from runtime.protocol.run_length import from_runs, to_runs
from tests.runtime.master.queue.test_task_queue import Asker, table_of
from tests.runtime.master.queue_rules import MemoryStore

LIMIT = 100 * 1024
TRAINERS = [Trainer(index, 1000 + index) for index in range(7)]


@given(st.lists(st.integers(0, 30)) | st.builds(range, st.integers(0, 9), st.integers(9, 60), st.integers(1, 5)))
def test_runs_are_read_back_as_they_were(numbers):
    assert from_runs(to_runs(numbers)) == tuple(numbers)


def test_every_second_task_as_a_hand_is_stored_as_three_numbers():
    assert to_runs(range(1, 10_000, 2)) == [[1, 2, 5000]]


def test_a_table_is_read_back_as_it_was():
    assert TaskTable.from_json(table_of(3).to_json()) == table_of(3)


class MeasuringStore(MemoryStore):
    """Records the number of bytes of each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def txn(self, compares: Sequence[Compare], operations: Sequence[Put]) -> Committed | Conflict:
        self.sizes.append(sum(len(put.key) + len(put.value) for put in operations))
        return super().txn(compares, operations)


def test_m15_no_commit_for_10_000_tasks_is_larger_than_100_kb():
    store = MeasuringStore()
    ledger = Ledger(store, "/j/")
    queue = TaskQueue.begin(Plan(2, True, len(TRAINERS)), table_of(10_000), 0.0)

    def commit() -> None:
        ledger.commit(queue.take(0.0), queue.entries, queue.table)

    commit()
    queue.members(TRAINERS, 0.0)
    commit()
    askers = [Asker(queue, trainer) for trainer in TRAINERS]
    for asker in askers * 5:
        asker.fail(asker.get())  # to the tail: hands out of order
        commit()
    queue.members(TRAINERS[:3], 0.0)  # the hands of the others are assigned to these
    commit()
    assert max(store.sizes) <= LIMIT
    recovered = TaskQueue.resume(queue.plan, queue.table, Ledger(store, "/j/").load(queue.table))
    assert recovered.assigner.assignment() == queue.assigner.assignment()


def begun(records):
    return TaskQueue.begin(Plan(1, True, 1), table_of(records), 0.0)


def test_the_table_of_a_job_that_another_master_has_begun_is_not_written_over():
    store = MemoryStore()
    first, second = begun(3), begun(4)
    late = Ledger(store, "/j/")
    assert late.load(second.table) is None
    Ledger(store, "/j/").commit(first.take(0.0), first.entries, first.table)
    with pytest.raises(Behind):
        late.commit(second.take(0.0), second.entries, second.table)
    assert Ledger(store, "/j/").load(first.table) is not None


class OvertakenStore(MemoryStore):
    """Another process becomes the master after the leader was first read."""

    def __init__(self) -> None:
        super().__init__()
        self._overtaken = False

    def get(self, key: str) -> Versioned | None:
        found = self.entries.get(key)
        if not self._overtaken:
            self._overtaken = True
            lead(self, "/j/", Compare("/members/master/1"))  # type: ignore[arg-type]
        return found


def test_of_two_masters_that_take_over_at_once_one_succeeds():
    store = OvertakenStore()
    with pytest.raises(Lost):
        lead(store, "/j/", Compare("/members/master/0"))
    assert store.entries["/j/master/leader"].value == b"/members/master/1"
