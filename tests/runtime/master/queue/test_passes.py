"""When passes begin and end, without the rest of the queue."""

from __future__ import annotations

from runtime.master.messages import Trainer
from runtime.master.queue.assignment import Assigner
from runtime.master.queue.passes import Passes
from runtime.master.queue.task_states import Board
from runtime.master.types import Entry, Happening, Plan, Status
from tests.runtime.master.queue.test_task_queue import X, Y, table_of


class Job:
    """A board of two tasks with its passes, and what they report."""

    def __init__(self, *live: Trainer, passes: int = 2, trainers: int = 1, min_trainers: int = 1) -> None:
        self.reported: list[Happening] = []
        self.board = Board(Plan(passes, trainers=trainers, min_trainers=min_trainers), table_of(2))
        self.board.entries = [Entry(), Entry()]
        self.assigner = Assigner(self.board, live=live)
        self.passes = Passes(self.board, self.assigner, self.reported.append, 20.0)

    def finish(self, status: Status = Status.DONE) -> None:
        for task_id, entry in enumerate(self.board.entries):
            self.board.write(task_id, entry._replace(status=status, pass_id=self.board.pass_id))


def test_the_first_pass_waits_for_all_trainers_and_after_its_grace_period_for_the_minimum():
    assert not Job(X, trainers=2).passes.may_start(19.9)
    assert Job(X, trainers=2).passes.may_start(20.0)
    assert Job(X, Y, trainers=2).passes.may_start(0.0)
    assert not Job(trainers=2, min_trainers=0).passes.may_start(20.0)


def test_a_pass_is_open_from_its_begin_to_the_end_of_the_last():
    job = Job(X)
    assert not job.passes.open
    job.passes.start(1.0, 300.0)
    assert (job.passes.open, job.board.pass_id, job.passes.begun) == (True, 0, 1.0)
    job.finish()
    assert job.passes.end(3.0) == ""
    assert (job.passes.open, job.board.pass_id, job.passes.begun) == (True, 1, 3.0)
    job.finish()
    assert job.passes.end(5.0) == ""
    assert not job.passes.open
    assert job.reported[-1].text == "All 2 passes are done."


def test_every_task_is_todo_and_free_in_the_next_pass():
    job = Job(X)
    job.passes.start(0.0, 300.0)
    job.finish()
    job.passes.end(1.0)
    assert list(job.assigner.free) == [0, 1]
    assert job.board.count(Status.TODO) == 2


def test_a_pass_without_any_done_task_fails_the_job_instead_of_beginning_the_next():
    job = Job(X)
    job.passes.start(0.0, 300.0)
    job.finish(Status.DISCARDED)
    assert job.passes.end(1.0).startswith("No task of pass 1 could be completed:")
    assert job.board.pass_id == 0
