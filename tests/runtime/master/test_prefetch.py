"""A trainer is given its next task with the one that it asks for."""

from __future__ import annotations

import pytest

from runtime.master.messages import Task, Wait, answer_from_json, answer_to_json
from runtime.master.queue import TaskQueue
from runtime.master.state import Status, Verdict
from tests.runtime.master.test_queue import Asker, X, Y, queue_of

USUAL = 20.0


def ahead(tasks: int = 6, *, sync: bool = False, **options: float) -> tuple[TaskQueue, Asker, Asker]:
    queue = queue_of(tasks, X, Y, passes=1, sync=sync, prefetch=True, **options)
    return queue, Asker(queue, X), Asker(queue, Y)


def names(task: Task) -> tuple[int, int | None]:
    return task.task_id, task.prefetched and task.prefetched.task_id


@pytest.mark.parametrize(("sync", "expected"), [(False, [(0, 1), (2, 3), (1, 4)]), (True, [(0, 2), (1, 3), (2, 4)])])
def test_whoever_asks_begins_what_it_was_given_ahead_and_is_given_another(sync, expected):
    _queue, x, y = ahead(sync=sync)
    first, of_y = x.get(), y.get()
    x.done(first)
    second = x.get()
    assert [names(task) for task in (first, of_y, second)] == expected
    assert second.epoch == first.prefetched.epoch, "it is the same dispatch"


def test_it_comes_over_the_wire(tmp_path):
    _queue, x, _y = ahead()
    task = x.get()
    assert answer_from_json(answer_to_json(task)) == task


def test_near_the_end_of_a_pass_nothing_is_kept_from_the_others():
    _queue, x, y = ahead(tasks=3)
    assert [names(x.get()), names(y.get())] == [(0, 1), (2, None)]


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
def test_who_does_not_go_on_as_usual_gives_it_back_and_nobody_is_blamed(report):
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


def test_what_waits_behind_a_slow_task_is_taken_over_by_who_is_idle():
    _queue, x, y = ahead(tasks=3)
    slow = x.get(0.0)
    y.done(y.get(0.0), USUAL)
    assert isinstance(y.get(USUAL), Wait)
    taken = y.get(2 * USUAL)
    assert (taken.task_id, taken.epoch) == (1, 2)
    assert x.done(slow.prefetched, 2 * USUAL) is Verdict.STALE


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
    assert x.done(task.prefetched, 5.0) is Verdict.OK
    assert x.done(task, 5.0) is Verdict.OK
    assert queue.count(Status.DONE) == 2
