"""The index of pending tasks by trainer."""

from __future__ import annotations

from runtime.master.queue.trainer_tasks import TrainerTasks
from runtime.master.types import Entry, Rival, Status, Timer
from tests.runtime.master.queue.test_task_queue import X, Y

TIMER = Timer(1.0, 61.0)
BEGUN = Entry(Status.PENDING, trainer=X, request=3, timer=TIMER)


def prefetched(turn: int) -> Entry:
    return Entry(Status.PENDING, trainer=X, request=-turn)


def test_a_begun_task_is_in_the_hand_of_each_of_its_trainers():
    tasks = TrainerTasks()
    tasks.add(5, BEGUN._replace(rival=Rival(Y, 2, 1, TIMER)))
    assert tasks.in_hand == {X: {5}, Y: {5}}
    assert tasks.prefetched(X) == []


def test_prefetched_tasks_are_in_the_order_in_which_they_will_be_begun():
    tasks = TrainerTasks()
    for turn, task_id in ((2, 1), (1, 9), (3, 0)):
        tasks.add(task_id, prefetched(turn))
    assert tasks.prefetched(X) == [9, 1, 0]
    assert not tasks.in_hand[X]


def test_a_prefetched_task_whose_timer_runs_is_in_both():
    tasks = TrainerTasks()
    tasks.add(5, prefetched(1)._replace(timer=TIMER))
    assert (tasks.in_hand[X], tasks.prefetched(X)) == ({5}, [5])


def test_a_removed_task_is_in_neither():
    tasks = TrainerTasks()
    for task_id, entry in ((5, BEGUN._replace(rival=Rival(Y, 2, 1, TIMER))), (6, prefetched(1))):
        tasks.add(task_id, entry)
        tasks.remove(task_id, entry)
    assert not any((*tasks.in_hand.values(), *tasks.held.values()))


def test_tasks_that_are_not_pending_are_not_listed():
    tasks = TrainerTasks()
    for status in set(Status) - {Status.PENDING}:
        tasks.add(5, BEGUN._replace(status=status))
    assert not tasks.in_hand
