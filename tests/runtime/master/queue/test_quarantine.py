"""The search for a record that no trainer can process."""

from __future__ import annotations

import re

import pytest

from runtime.data.dataset import Chunk
from runtime.master.messages import JobDone, Task, Trainer
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.task_table import TaskTable
from runtime.master.types import Bad, Plan, Status
from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.master.queue.test_task_queue import Asker, texts
from tests.runtime.master.queue_rules import MemoryStore

PASSES = 3
CHUNKS = (Chunk("/data/a.recordio", 0, 100, 40), Chunk("/data/a.recordio", 100, 100, 60))
TABLE = TaskTable("public/test", ((Chunk("/data/a.recordio", 200, 9, 20),), CHUNKS, CHUNKS[:1]))


class Simulation:
    """Trainers that are killed by bad records and restarted; and the records done in each pass."""

    def __init__(self, trainers: int, bad: set[tuple[int, int]], *, sync: bool, named: bool = False) -> None:
        plan = Plan(PASSES, sync, trainers, failure_cap=3, quarantine=True)
        self.bad, self.named = bad, named
        self.store = MemoryStore()
        self.ledger = Ledger(self.store, "/j/")
        self.queue = TaskQueue.begin(plan, TABLE, 0.0)
        self.done: dict[int, list[tuple[int, int]]] = {pass_id: [] for pass_id in range(PASSES)}
        self.reported: list[str] = []
        self.deaths = 0
        self.live = {index: Asker(self.queue, Trainer(index, index + 1)) for index in range(trainers)}
        self.take_changes()

    def take_changes(self) -> None:
        self.queue.members([asker.trainer for asker in self.live.values()], 0.0)

    def commit(self) -> None:
        changes = self.queue.take(0.0)
        self.reported += [happening.text for happening in changes.happenings]
        self.ledger.commit(changes, self.queue.entries, TABLE)

    def run(self, *, restarts: bool = False) -> None:
        """Run the trainers in turn until the job is over."""
        for _ in range(2000):
            for index in list(self.live):
                self.turn(index)
                self.commit()
                if restarts:
                    self.restart()
            if self.queue.finished or self.queue.failed:
                return
        raise AssertionError("the job does not end")

    def restart(self) -> None:
        self.ledger = Ledger(self.store, "/j/")
        self.queue = TaskQueue.resume(self.queue.plan, TABLE, self.ledger.load(TABLE))
        for asker in self.live.values():
            asker.queue = self.queue

    def turn(self, index: int) -> None:
        asker = self.live[index]
        task = asker.get()
        if not isinstance(task, Task):
            return
        root = TABLE.tasks.index(task.chunks)
        ranges = task.ranges if task.ranges is not None else ((0, TABLE.span(root).records),)
        records = [(root, record) for first, end in ranges for record in range(first, end)]
        poison = next((record for record in records if record in self.bad), None)
        if poison is None:
            self.done[task.pass_id] += records
            asker.done(task)
            return
        if self.named:
            self.queue.fail(asker.key(task), "it raised", 0.0, (poison[1], poison[1] + 1))
        self.deaths += 1
        del self.live[index]
        self.take_changes()
        self.live[index] = Asker(self.queue, Trainer(index, 1000 + self.deaths))
        self.take_changes()


ALL = {(task, record) for task in range(3) for record in range(TABLE.span(task).records)}


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("trainers", [1, 2, 4])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_record_that_kills_its_trainer_is_found_and_all_others_are_done(sync, trainers, restarts):
    simulation = Simulation(trainers, {(1, 57)}, sync=sync)
    simulation.run(restarts=restarts)
    assert simulation.queue.board.quarantine == (Bad(1, 57),)
    for pass_id in range(PASSES):
        assert sorted(simulation.done[pass_id]) == sorted(ALL - {(1, 57)})
    assert simulation.deaths <= 12
    reported = "\n".join(simulation.reported)
    assert re.search(
        r"Record 77 \(a\.recordio\) of public/test \(task 1, chunk 1\) is skipped from now on: "
        r"trainer-\d( and trainer-\d)* could not process it\.",
        reported,
    ), reported
    last = messages.ALL_PASSES_DONE_EXCEPT(count=PASSES, records="record 77 (a.recordio)", dataset="public/test")
    assert simulation.reported[-1] == last


def test_a_failure_with_a_place_needs_no_search():
    simulation = Simulation(2, {(1, 57)}, sync=False, named=True)
    simulation.run()
    assert (simulation.queue.board.quarantine, simulation.deaths) == ((Bad(1, 57),), 3)


def test_several_records_are_found():
    bad = {(0, 3), (1, 0), (1, 99)}
    simulation = Simulation(3, bad, sync=False)
    simulation.run()
    assert set(simulation.queue.board.quarantine) == {Bad(*record) for record in bad}
    assert sorted(simulation.done[PASSES - 1]) == sorted(ALL - bad)


def test_the_quarantine_is_stored_with_names_for_people():
    simulation = Simulation(2, {(1, 57)}, sync=False)
    simulation.run()
    stored = simulation.store.entries["/j/master/quarantine"].value
    assert stored == b'{"dataset":"public/test","records":[[1,57,"record 77 (a.recordio)"]]}'


def test_a_task_of_which_all_is_bad_is_given_up_after_a_while_and_the_rest_goes_on():
    simulation = Simulation(2, {record for record in ALL if record[0] == 1}, sync=False)
    simulation.run()
    assert simulation.queue.finished
    assert simulation.deaths < PASSES * 150
    assert sorted(simulation.done[0]) == sorted(record for record in ALL if record[0] != 1)


def test_a_script_that_can_do_nothing_fails_the_job_without_a_search():
    simulation = Simulation(2, set(ALL), sync=False)
    simulation.run()
    assert simulation.queue.failed
    assert simulation.queue.board.quarantine == ()


def test_one_trainer_is_not_enough_to_blame_a_record_while_two_are_alive():
    queue = TaskQueue.begin(Plan(1, False, 2, quarantine=True), TABLE, 0.0)
    x, y = (Asker(queue, Trainer(index, index + 1)) for index in range(2))
    queue.members([x.trainer, y.trainer], 0.0)
    y.done(y.get())
    task = x.get()
    queue.fail(x.key(task), "it raised", 0.0, (57, 58))
    while (piece := x.get()).ranges != ((57, 58),):
        x.done(piece)
    queue.fail(x.key(piece), "it raised", 0.0)
    assert queue.board.quarantine == ()
    assert (57, 58) in {y.get().ranges[0], y.get().ranges[0]}
    assert mentions(texts(queue), messages.TASK_SEARCHED)
    assert queue.entries[1].status is Status.SPLIT
    assert not isinstance(x.get(), JobDone)
