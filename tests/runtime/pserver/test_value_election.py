import pytest

from runtime.parameters.messages import NOTHING, Offer, Outcome
from runtime.pserver.recovery import Recovered
from runtime.pserver.requests import TrainerId
from runtime.pserver.steps.barrier import Barrier
from runtime.pserver.value_election import ValueElection

A, B = TrainerId(0, 10), TrainerId(1, 11)
HELD_3 = Offer(held=3, seen=3)


@pytest.fixture
def barrier():
    barrier = Barrier(2)
    barrier.change_members({0: 10, 1: 11})
    return barrier


@pytest.fixture
def election(barrier):
    return ValueElection(0, barrier)


def outcomes(releases):
    return {release.ticket: release.outcome for release in releases}


def test_the_lowest_trainer_of_the_launch_gives_the_first_values(election):
    election.declare("b", B)
    assert election.elect(0, strict=True) == []
    election.declare("a", A)
    assert outcomes(election.elect(0, strict=True)) == {"a": Outcome.INITIALISE}
    assert election.elect(0, strict=True) == []


def test_with_values_every_declaration_is_answered_once(election):
    election.declare("a", A)
    election.declare("b", B)
    election.ready = True
    assert outcomes(election.elect(0, strict=True)) == {"a": Outcome.READY, "b": Outcome.READY}
    assert election.elect(0, strict=True) == []


def test_one_trainer_at_a_time_is_asked_for_lost_values(election):
    election.begin_recovery()
    for ticket, trainer in (("a", A), ("b", B)):
        election.declare(ticket, trainer)
        election.take_offer(trainer.index, HELD_3, 0.0)
    assert outcomes(election.elect(0, strict=True)) == {"a": Outcome.RESEED}
    assert (election.giver, election.elect(0, strict=True)) == (0, [])


def test_when_the_giver_is_lost_another_one_is_asked(election, barrier):
    test_one_trainer_at_a_time_is_asked_for_lost_values(election)
    barrier.change_members({1: 11})
    assert election.forget(0) == []
    assert outcomes(election.elect(0, strict=True)) == {"b": Outcome.RESEED}


def test_restored_values_answer_the_others(election):
    test_one_trainer_at_a_time_is_asked_for_lost_values(election)
    assert outcomes(election.end_recovery(3)) == {"b": Outcome.READY}
    assert (election.ready, election.recovering) == (True, False)
    assert election.recovered == Recovered(3, 0, NOTHING)


def test_lost_values_answer_everybody_with_the_reason(election):
    election.declare("a", A)
    (release,) = election.lose("gone", 2)
    assert (release.outcome, release.version, release.why, election.lost) == (Outcome.LOST, 2, "gone", "gone")


def test_the_declarations_of_a_lost_trainer_leave_with_it(election):
    election.declare("a", A)
    election.declare("b", B)
    assert election.forget(0) == ["a"]
    assert outcomes(election.elect(0, strict=True)) == {}
