"""Tasks for a trainer that runs alone: the same answers as from a master."""

from __future__ import annotations

import pytest

from runtime.master.messages import Wait
from runtime.messages import training as messages
from runtime.trainer.tasks.task_client import JobDone, JobFailed, LocalTasks, PassEnd, Task
from tests.messages import pattern
from tests.runtime.master.queue.test_task_queue import table_of


def test_all_tasks_of_all_passes_come_in_order_with_the_ends_of_passes():
    source = LocalTasks(table_of(2), 2)
    seen = []
    while not isinstance(answer := source.next_task(), JobDone):
        assert not isinstance(answer, Wait)
        seen.append((answer.pass_id, answer.task_id) if isinstance(answer, Task) else answer)
        if isinstance(answer, Task):
            assert source.done(answer)
    assert seen == [(0, 0), (0, 1), PassEnd(0), (1, 0), (1, 1), PassEnd(1)]


def test_a_released_task_comes_again_first():
    source = LocalTasks(table_of(2), 1)
    task = source.next_task()
    assert source.release(task)
    assert source.next_task().task_id == task.task_id


def test_a_report_on_a_task_that_was_handed_back_does_not_count():
    source = LocalTasks(table_of(1), 1)
    task = source.next_task()
    source.release(task)
    assert not source.done(task)


def test_a_task_that_nobody_can_do_fails_the_job_with_its_records():
    source = LocalTasks(table_of(1), 2)
    for _ in range(4):
        source.fail(source.next_task(), "it raised")
    with pytest.raises(JobFailed, match=pattern(messages.RECORD_RANGE, first=0, last=9)):
        source.next_task()


def test_the_only_trainer_may_save_the_model():
    assert LocalTasks(table_of(1), 1).save_request(10)
