"""Prefetching: a trainer is given its next tasks with the one that it requests."""

from __future__ import annotations

import pytest

from runtime.master.messages import (
    Ahead,
    Task,
    Wait,
    ahead_from_json,
    ahead_to_json,
    answer_from_json,
    answer_to_json,
)
from runtime.master.queue.prefetch import MOST_AHEAD, MOST_FORETOLD, how_many
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.types import Status, Verdict
from tests.runtime.master.queue.test_task_queue import Asker, X, Y, queue_of

USUAL = 20.0


def ahead(tasks: int = 6, *, sync: bool = False, **options: float) -> tuple[TaskQueue, Asker, Asker]:
    queue = queue_of(tasks, X, Y, **{"passes": 1, "sync": sync, "prefetch": True, **options})
    return queue, Asker(queue, X), Asker(queue, Y)


def names(task: Task) -> tuple[int, ...]:
    return (task.task_id, *(other.task_id for other in task.prefetched))


@pytest.mark.parametrize(("sync", "expected"), [(False, [(0, 1), (2, 3), (1, 4)]), (True, [(0, 2), (1, 3), (2, 4)])])
def test_a_get_starts_the_prefetched_task_and_prefetches_another(sync, expected):
    _queue, x, y = ahead(sync=sync)
    first, of_y = x.get(), y.get()
    x.done(first)
    second = x.get()
    assert [names(task) for task in (first, of_y, second)] == expected
    assert second.epoch == first.prefetched[0].epoch, "it is the same dispatch"


def test_it_comes_over_the_wire(tmp_path):
    _queue, x, _y = ahead()
    task = x.get()
    assert answer_from_json(answer_to_json(task)) == task


@pytest.mark.parametrize(
    ("usual", "tasks"),
    [(None, 1), (0.0, MOST_AHEAD), (0.001, MOST_AHEAD), (0.0125, 16), (0.02, 10), (0.15, 2), (0.2, 1), (3600.0, 1)],
)
def test_as_many_are_given_ahead_as_keep_a_trainer_busy_for_a_moment(usual, tasks):
    assert how_many(usual) == tasks


def quick(tasks: int = 12, **options: float) -> tuple[TaskQueue, Asker, Asker, Task]:
    """A queue whose known task duration is zero, and the current task of X."""
    queue, x, y = ahead(tasks, **options)
    x.done(x.get())
    return queue, x, y, x.get()


def numbers(answer: Ahead) -> list[int]:
    return [task.task_id for task in answer.tasks]


def test_of_short_tasks_many_are_given_in_the_order_of_the_queue_and_as_many_are_left_for_each_of_the_others():
    queue, _x, _y, task = quick()
    assert names(task) == (1, 2, 3, 4, 5, 6)
    assert numbers(queue.ahead(X, 0.0)) == [2, 3, 4, 5, 6]
    assert len(queue.assigner.free) == 5


def test_a_repeated_ahead_request_gets_the_same_answer():
    queue, _x, _y, _task = quick()
    assert queue.ahead(X, 0.0) == queue.ahead(X, 0.0)


def test_a_trainer_begins_what_it_was_given_without_asking_and_the_rest_keeps_its_order():
    queue, x, _y, task = quick()
    x.done(task, 1.0)
    assert queue.begun(x.key(task.prefetched[0]), 1.0) is Verdict.OK
    assert numbers(queue.ahead(X, 1.0)) == [3, 4, 5, 6]
    assert (queue.entries[2].timer.begun, queue.entries[2].prefetched) == (1.0, False)


def test_a_late_or_repeated_notice_changes_nothing():
    queue, x, _y, task = quick()
    second = task.prefetched[0]
    queue.begun(x.key(second), 1.0)
    assert queue.begun(x.key(second), 2.0) is Verdict.OK
    assert queue.entries[2].timer.begun == 1.0
    x.done(second, 3.0)
    assert queue.begun(x.key(second), 4.0) is Verdict.STALE
    assert queue.entries[2].status is Status.DONE


def test_a_lost_trainer_is_blamed_only_for_the_task_it_reported_as_begun():
    queue, x, _y, task = quick()
    x.done(task)
    queue.begun(x.key(task.prefetched[0]), 0.0)
    queue.members([Y], 1.0)
    assert [entry.failures for entry in queue.entries[:7]] == [0, 0, 1, 0, 0, 0, 0]
    assert list(queue.assigner.free)[:5] == [2, 3, 4, 5, 6], "and all go back in their order"


def test_in_sync_mode_the_last_task_of_the_pass_is_marked_beforehand():
    queue, _x, y, task = quick(tasks=6, sync=True)
    assert queue.ahead(X, 0.0) == Ahead(task.prefetched, ended=0)
    y.get()
    assert queue.ahead(Y, 0.0).ended == 0


def test_what_is_foretold_of_the_next_pass_is_what_it_brings():
    queue, x, y, task = quick(tasks=12, sync=True, passes=2)
    in_hand = {x: task, y: y.get()}
    foretold = {asker: queue.ahead(asker.trainer, 0.0).then for asker in in_hand}
    for asker, first in in_hand.items():
        for one in (first, *first.prefetched):
            asker.done(one)
    for asker, then in foretold.items():
        first = next(answer for answer in iter(asker.get, None) if isinstance(answer, Task))
        given = [first, *first.prefetched][:MOST_FORETOLD]
        assert [_as_foretold(one) for one in given] == list(then)


def _as_foretold(task: Task) -> Task:
    return task._replace(epoch=0, prefetched=())


def test_after_the_last_pass_nothing_is_foretold():
    queue, *_ = quick(tasks=6, sync=True)
    assert queue.ahead(X, 0.0).then == ()


def test_in_async_mode_more_may_always_come():
    queue, _x, _y, _task = quick(tasks=3)
    assert queue.ahead(X, 0.0) == Ahead()


def test_a_trainer_without_a_pending_task_gets_nothing_ahead():
    queue, x, _y, task = quick()
    for one in (task, *task.prefetched):
        x.done(one)
    assert queue.ahead(X, 0.0) == Ahead()


def test_what_is_next_comes_over_the_wire():
    queue, *_ = quick(sync=True, passes=2)
    answer = queue.ahead(X, 0.0)
    assert answer.tasks and answer.then
    assert ahead_from_json(ahead_to_json(answer)) == answer


def test_more_time_for_a_task_that_was_given_ahead_begins_it():
    queue, x, _y, task = quick()
    assert queue.extend(x.key(task.prefetched[0]), 5.0) is Verdict.OK
    assert (queue.entries[2].timer.begun, queue.entries[2].prefetched) == (5.0, False)


def test_near_the_end_of_a_pass_nothing_is_kept_from_the_others():
    _queue, x, y = ahead(tasks=3)
    assert [names(x.get()), names(y.get())] == [(0, 1), (2,)]


def test_its_time_runs_from_when_it_is_begun():
    queue, x, _y = ahead()
    task = x.get(0.0)
    x.done(task, 50.0)
    x.get(50.0)
    queue.tick(100.0)
    assert queue.entries[1].status is Status.PENDING
    assert queue.entries[1].timer.begun == 50.0


def test_its_time_runs_too_if_its_trainer_has_nothing_else_and_does_not_ask():
    queue, x, _y = ahead()
    x.done(x.get(0.0), 10.0)
    queue.tick(70.0)
    assert queue.entries[1].status is Status.TODO


@pytest.mark.parametrize("report", ["fail", "release", "overdue", "lost"])
def test_prefetched_tasks_are_returned_without_blame_after_an_unusual_report(report):
    queue, x, y = ahead()
    task = x.get(0.0)
    y.get(0.0)
    happens = {
        "fail": lambda: x.fail(task, 1.0),
        "release": lambda: queue.release(x.key(task), 1.0),
        "overdue": lambda: queue.tick(60.0),
        "lost": lambda: queue.members([Y], 1.0),
    }
    happens[report]()
    assert queue.entries[1].status is Status.TODO
    assert (queue.entries[1].failures, queue.entries[1].blamed) == (0, ())


def test_tasks_behind_a_slow_task_are_taken_over_by_idle_trainers():
    _queue, x, y = ahead(tasks=3)
    slow = x.get(0.0)
    y.done(y.get(0.0), USUAL)
    assert isinstance(y.get(USUAL), Wait)
    taken = y.get(2 * USUAL)
    assert (taken.task_id, taken.epoch) == (1, 2)
    assert x.done(slow.prefetched[0], 2 * USUAL) is Verdict.STALE


def test_the_slow_task_itself_is_finished_by_another_and_its_trainer_still_begins_the_next():
    queue, x, y = ahead(tasks=3)
    x.get(0.0)
    y.done(y.get(0.0), USUAL)
    y.done(y.get(2 * USUAL), 2 * USUAL)
    y.done(y.get(2 * USUAL), 2 * USUAL)
    assert queue.finished


def test_it_may_be_reported_done_before_it_was_asked_for():
    queue, x, _y = ahead()
    task = x.get(0.0)
    assert x.done(task.prefetched[0], 5.0) is Verdict.OK
    assert x.done(task, 5.0) is Verdict.OK
    assert queue.count(Status.DONE) == 2


def test_a_task_that_was_never_requested_does_not_count_in_task_durations():
    queue, x, _y = ahead()
    task = x.get(0.0)
    x.done(task.prefetched[0], 500.0)
    assert queue.durations.usual is None
    x.done(task, 505.0)
    assert queue.durations.usual == 505.0
