"""While the master's store is away a trainer begins the task that it was given ahead."""

from __future__ import annotations

import pytest

from runtime.coordination.base import StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.master.messages import JobDone, Task
from runtime.trainer.prefetching import Prefetching
from tests.runtime.master.test_server import X, Y, start, together  # noqa: F401  a fixture

PATIENCE = 0.1


class AwayStore(EmbeddedStore):
    """Takes no transactions while it is away."""

    away = False

    def txn(self, compares, operations):
        if self.away:
            raise StoreUnavailable("The store is away.")
        return super().txn(compares, operations)


@pytest.fixture
def store(tmp_path):
    store = AwayStore(tmp_path / "store.db")
    yield store
    store.close()


@pytest.fixture
def running(start, store):  # noqa: F811
    yield start(6, X, passes=1, prefetch=True)
    store.away = False


@pytest.fixture
def source(running):
    return Prefetching(running.client(X), PATIENCE)


def entries(running):
    return running.master.change(lambda queue, now: list(queue.entries))


def test_all_tasks_are_done_in_order_while_the_store_answers(source):
    seen, task = [], None
    while not isinstance(answer := source.next_task(task), JobDone):
        task = answer if isinstance(answer, Task) else None
        seen.append(answer.task_id if task else answer)
    assert seen[:6] == [0, 1, 2, 3, 4, 5]


def test_one_task_more_is_done_while_the_store_is_away_and_the_job_goes_on_when_it_is_back(source, store):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    assert second == first.prefetched
    assert source.extend(second), "nobody waits to be granted time"
    answers = []
    with together(lambda: answers.append(source.next_task(second))):
        store.away = False
    assert [task.task_id for task in answers] == [2]


def test_what_was_done_meanwhile_counts_once(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    assert source.done(second)
    assert [entry.epoch for entry in entries(running)[:3]] == [1, 1, 1]
    assert source.next_task().task_id == 2


def test_a_task_that_fails_gives_back_what_was_given_ahead(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    assert source.fail(second, "it raised")
    assert [entry.failures for entry in entries(running)[:4]] == [0, 1, 0, 0]
    assert source.next_task().task_id == 2


def test_a_task_that_was_another_s_meanwhile_does_not_count_and_the_trainer_goes_on(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    running.master.members([Y])  # it was taken for dead, and its tasks went to another
    running.master.members([X, Y])
    other = running.client(Y)
    assert other.next_task().task_id in (0, 1, 2)
    assert not source.done(second)
    assert isinstance(source.next_task(), Task)
