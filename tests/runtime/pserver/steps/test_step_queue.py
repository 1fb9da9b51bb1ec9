import pytest

from runtime.pserver.requests import Step
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.steps.barrier import Barrier
from runtime.pserver.steps.step_queue import StepQueue


@pytest.fixture
def barrier():
    barrier = Barrier(2)
    barrier.change_members({0: 10, 1: 11})
    return barrier


@pytest.fixture
def queue(barrier):
    queue = StepQueue(barrier)
    for index in (0, 1):
        queue.enter(f"enter {index}", index, 0, 0)
    queue.admit(0)
    return queue


def step(seq=1, base=0, samples=1):
    return Step(seq, samples, base)


def test_an_entry_waits_while_others_are_in_an_earlier_pass(queue, barrier):
    barrier.end(0, 0)
    queue.enter("next pass", 0, 1, 0)
    assert (queue.entry_of(0), queue.admit(0)) == ("next pass", [])
    barrier.end(1, 0)
    assert (queue.admit(0), queue.admit(0), queue.entry_of(0)) == (["next pass"], [], None)


def test_a_repeated_entry_is_answered_in_place_of_the_earlier_one(queue, barrier):
    barrier.end(0, 0)
    barrier.end(1, 0)
    queue.enter("first", 0, 1, 0)
    queue.repeat_entry("first", "second")
    assert queue.admit(0) == ["second"]


def test_steps_leave_together_in_order_of_trainers(queue):
    queue.push(1, "b", step())
    assert queue.take(0) == []
    queue.push(0, "a", step())
    assert [(index, ticket) for index, ticket, _step in queue.take(0)] == [(0, "a"), (1, "b")]
    assert queue.waiting == []


def test_a_trainer_has_one_step_in_the_queue(queue):
    assert queue.push(0, "a", step()) is None
    assert queue.push(0, "again", step()) == "a"
    assert queue.waiting == [0]


def test_only_steps_of_other_versions_are_late(queue):
    queue.push(0, "late", step(base=0))
    queue.push(1, "due", step(base=1))
    assert [ticket for _index, ticket, _step in queue.take_late(1)] == ["late"]
    assert queue.waiting == [1]


def test_a_lost_trainer_leaves_no_ticket(queue, barrier):
    queue.push(0, "step", step())
    barrier.end(0, 0)
    queue.enter("entry", 0, 1, 0)
    assert queue.forget(0) == (["entry"], ["step"])
    assert (queue.waiting, queue.entry_of(0), queue.forget(0)) == ([], None, ([], []))


def test_the_members_of_a_version_are_known_once_every_step_is_on_its_way(queue):
    first, second = Coming(1, 1, 0, ()), Coming(1, 1, 0, ())
    assert queue.members(0, {1: second}) == []
    members = queue.members(0, {1: second, 0: first})
    assert [member is step for member, step in zip(members, (first, second), strict=True)] == [True, True]


def test_a_step_without_samples_is_no_member(queue):
    queue.push(0, "empty", step(samples=0))
    coming = Coming(1, 1, 0, ())
    assert queue.members(0, {1: coming}) == [coming]
