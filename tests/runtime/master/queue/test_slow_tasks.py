"""Slow tasks: near the end of a pass, a second trainer gets them."""

from __future__ import annotations

import pytest

from runtime.master.messages import Task, Trainer, Wait
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.types import Status, Verdict
from tests.runtime.master.queue.test_task_queue import Asker, X, Y, Z, queue_of, texts
from tests.runtime.master.queue_rules import MemoryStore

USUAL = 20.0


def slow(*live: Trainer, tasks: int = 2, **options: float) -> tuple[TaskQueue, Asker, Asker, Task]:
    """X has had a task for longer than the other tasks took; Y has nothing to do."""
    queue = queue_of(tasks, *(live or (X, Y)), passes=1, **options)
    x, y = Asker(queue, X), Asker(queue, Y)
    task = x.get(0.0)
    for _ in range(tasks - 1):
        y.done(y.get(0.0), USUAL)
    return queue, x, y, task


def test_an_idle_trainer_gets_what_is_slow_a_second_time_as_a_dispatch_of_its_own():
    queue, _x, y, task = slow()
    assert isinstance(y.get(USUAL * 1.5), Wait)
    again = y.get(USUAL * 1.5 + 1.0)
    assert again == task._replace(epoch=task.epoch + 1)
    assert "Task 0 has been running on trainer-0 for 31 s (20 s is usual); trainer-1 runs it too" in texts(queue)


@pytest.mark.invariant("A task that two trainers finish counts once.")
@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_finish_counts_and_the_second_is_stale(winner):
    queue, x, y, task = slow()
    again = y.get(40.0)
    reports = [lambda now: x.done(task, now), lambda now: y.done(again, now)]
    assert reports[winner](41.0) is Verdict.OK
    assert queue.count(Status.DONE) == 2
    assert reports[1 - winner](42.0) is Verdict.STALE
    assert reports[winner](43.0) is Verdict.OK  # a lost reply
    assert queue.finished


def test_no_epoch_is_used_twice_though_the_first_of_two_wins():
    queue = queue_of(2, X, Y, passes=2)
    x, y = Asker(queue, X), Asker(queue, Y)
    task = x.get(0.0)
    y.done(y.get(0.0), USUAL)
    again = y.get(40.0)
    x.done(task, 41.0)
    x.get(41.0)
    following = x.get(41.0)
    assert (following.task_id, following.pass_id, following.epoch) == (task.task_id, 1, again.epoch + 1)


def test_a_request_that_is_asked_again_gets_the_same_second_dispatch():
    _queue, _x, y, _task = slow()
    again = y.get(40.0)
    y.request -= 1
    assert y.get(41.0) == again


def test_a_third_trainer_waits():
    queue, _x, y, _task = slow(X, Y, Z)
    y.get(40.0)
    assert isinstance(Asker(queue, Z).get(41.0), Wait)


def test_nobody_tries_what_is_short():
    queue, _x, y, _task = slow()
    queue.durations = queue.durations._replace(usual=0.01)
    assert isinstance(y.get(5.0), Wait)
    assert isinstance(y.get(5.1), Task)


def test_while_something_is_todo_nothing_is_done_twice():
    queue = queue_of(4, X, Y, passes=1)
    x, y = Asker(queue, X), Asker(queue, Y)
    slow_one = x.get(0.0)
    y.done(y.get(0.0), USUAL)
    assert y.get(100.0).task_id != slow_one.task_id


def test_in_sync_mode_nothing_is_done_twice():
    queue = queue_of(2, X, Y, passes=1, sync=True)
    x, y = Asker(queue, X), Asker(queue, Y)
    x.get(0.0)
    y.done(y.get(0.0), USUAL)
    assert not isinstance(y.get(59.0), Task)


@pytest.mark.parametrize("leaver", [0, 1])
def test_when_one_of_the_two_is_lost_the_other_goes_on_and_the_loss_is_held_against_the_task(leaver):
    queue, x, y, task = slow()
    again = y.get(40.0)
    queue.members([(X, Y)[1 - leaver]], 41.0)
    [entry] = [queue.entries[task.task_id]]
    assert (entry.status, entry.holders) == (Status.PENDING, ((X, Y)[1 - leaver],))
    assert (entry.failures, entry.blamed) == (1, (leaver,))
    done = (y.done(again, 42.0), x.done(task, 42.0)) if leaver == 0 else (x.done(task, 42.0), y.done(again, 42.0))
    assert done == (Verdict.OK, Verdict.STALE)


def test_what_fails_on_both_is_blamed_on_both_and_left_out():
    queue, x, y, task = slow(failure_cap=1)
    again = y.get(40.0)
    y.fail(again, 41.0)
    assert queue.count(Status.PENDING) == 1
    x.fail(task, 42.0)
    assert queue.entries[task.task_id].status is Status.DISCARDED
    assert queue.entries[task.task_id].blamed == (0, 1)


def test_one_of_two_that_hands_it_back_is_not_blamed():
    queue, x, y, task = slow()
    y.get(40.0)
    assert queue.release(x.key(task), 41.0) is Verdict.OK
    entry = queue.entries[task.task_id]
    assert (entry.status, entry.holders, entry.failures) == (Status.PENDING, (Y,), 0)


def test_each_of_the_two_has_its_own_deadline():
    queue, _x, y, task = slow()
    y.get(40.0)
    assert queue.next_deadline(40.0) == 60.0
    queue.tick(60.0)
    assert queue.entries[task.task_id].holders == (Y,)
    assert queue.next_deadline(60.0) == 100.0
    queue.tick(100.0)
    assert queue.entries[task.task_id].status is Status.TODO


def test_another_master_restores_both_dispatches():
    queue, _x, y, task = slow()
    y.get(40.0)
    store = MemoryStore()
    Ledger(store, "/j/").commit(queue.take(40.0), queue.entries, queue.table)
    successor = TaskQueue.resume(queue.plan, queue.table, Ledger(store, "/j/").load(queue.table))
    assert successor.entries == queue.entries
    assert successor.entries[task.task_id].holders == (X, Y)
