"""Tasks taken back from trainers, without the rest of the queue."""

from __future__ import annotations

from collections import deque

from runtime.master.queue.assignment import Assigner
from runtime.master.queue.failure_attribution import Blame
from runtime.master.queue.preemption import Preemption
from runtime.master.queue.task_states import Board
from runtime.master.types import Entry, Plan, Timer
from tests.runtime.master.queue.test_task_queue import X, Y, table_of

TIMER = Timer(0.0, 60.0)


class Job:
    """Four tasks of an open pass: X has begun 0 and has prefetched 1 and 2; 3 is free."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.board = Board(Plan(1, prefetch=True), table_of(4))
        self.board.entries = [Entry() for _ in range(4)]
        self.board.begin_pass(0)
        self.assigner = Assigner(self.board, live=(X, Y))
        self.assigner.begin_pass(0.0)
        self.board.dispatch(self.assigner.take(X), X, 1, TIMER)
        for _ in range(2):
            self.board.prefetch(self.assigner.take(X), X)
        blame = Blame(self.board, self.assigner, self.report)
        self.preemption = Preemption(self.board, self.assigner, blame, self.report)

    def report(self, kind: str, text: str, notable: bool) -> None:
        self.reported.append(text)

    @property
    def failures(self) -> list[int]:
        return [entry.failures for entry in self.board.entries]


def test_prefetched_tasks_return_to_the_head_in_their_order_and_without_blame():
    job = Job()
    job.preemption.take_prefetched(X)
    assert list(job.assigner.free) == [1, 2, 3]
    assert (job.board.pending, job.failures) == ({0}, [0, 0, 0, 0])


def test_a_lost_trainer_keeps_no_task_and_is_blamed_only_for_the_one_that_it_had_begun():
    job = Job()
    job.assigner.members([Y], 5.0)
    job.preemption.take_from_the_lost()
    assert list(job.assigner.free) == [0, 1, 2, 3]
    assert (job.board.pending, job.failures) == (set(), [1, 0, 0, 0])


def test_live_trainers_keep_their_tasks():
    job = Job()
    job.preemption.take_from_the_lost()
    assert job.board.pending == {0, 1, 2}


def test_an_overdue_task_goes_to_the_tail_with_blame_and_those_behind_it_to_the_head_without():
    job = Job()
    job.preemption.take_overdue(59.9)
    assert job.board.pending == {0, 1, 2}
    job.preemption.take_overdue(60.0)
    assert list(job.assigner.free) == [1, 2, 3, 0]
    assert job.failures == [1, 0, 0, 0]
    assert job.reported == [f"Task 0 is overdue on {X} and moves to the end of the queue."]


def test_a_prefetched_task_is_never_overdue():
    job = Job()
    job.preemption.take_overdue(1e9)
    assert job.failures == [1, 0, 0, 0]


def test_the_hand_of_a_silent_trainer_is_freed_if_another_is_active():
    job = Job()
    job.assigner.hands = {X: deque([3])}
    job.assigner.free.clear()
    job.assigner.last_contact = {X: 0.0, Y: 100.0}
    job.preemption.take_from_the_silent(99.0, 100.0)
    assert job.assigner.hands
    job.preemption.take_from_the_silent(100.0, 100.0)
    assert (list(job.assigner.free), job.assigner.hands) == ([3], {})
    assert len(job.reported) == 1
