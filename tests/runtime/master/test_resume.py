"""An attempt that begins at the data position of an earlier one's parameters."""

from runtime.checkpoint.data_position import Progress
from runtime.master.messages import PassEnd, Trainer, answer_from_json, answer_to_json
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.types import Key, Plan
from tests.runtime.master.queue_rules import MemoryStore
from tests.runtime.master.test_queue_store import table_of

A, B = Trainer(0, 5), Trainer(1, 6)


def begun(progress, tasks=6, trainers=(A, B)):
    queue = TaskQueue.begin(Plan(2, True, len(trainers), resume=progress), table_of(tasks), 0.0)
    queue.members(trainers, 1.0)
    return queue


def hands(queue):
    return {trainer: list(hand) for trainer, hand in queue.assigner.hands.items()}


def test_the_rest_of_a_pass_keeps_its_assignment():
    assert hands(begun(None)) == {A: [0, 2, 4], B: [1, 3, 5]}
    assert hands(begun(Progress(0, {0, 1, 2}))) == {A: [4], B: [3, 5]}


def test_of_a_task_that_was_begun_the_rest_is_to_be_done():
    queue = begun(Progress(0, set(), {1: 3}))
    task = queue.get(B, 1, None, 2.0)
    assert (task.task_id, task.skip) == (1, 3)
    assert answer_from_json(answer_to_json(task)) == task


def test_in_the_next_pass_all_is_new():
    queue = begun(Progress(0, {0}, {1: 3}), tasks=2)
    queue.done(key_of(queue.get(B, 1, None, 2.0)), 3.0)
    assert [queue.get(trainer, 2, None, 4.0).skip for trainer in (A, B)] == [0, 0]


def key_of(task):
    return Key(task.pass_id, task.task_id, task.epoch, B)


def test_a_trainer_without_tasks_gets_the_end_of_the_pass():
    assert begun(Progress(0, {0, 2, 4})).get(A, 1, None, 2.0) == PassEnd(0)


def test_a_pass_that_was_done_whole_is_over():
    assert begun(Progress(0, set(range(6)))).pass_id == 1


def test_a_master_that_takes_over_has_the_same_state():
    queue = begun(Progress(1, {0}, {1: 3}))
    ledger = Ledger(MemoryStore(), "/j/")
    ledger.commit(queue.take(1.0), queue.entries, queue.table)
    successor = TaskQueue.resume(queue.plan, queue.table, ledger.load(queue.table))
    assert (successor.pass_id, successor.get(B, 1, None, 2.0).skip) == (1, 3)
