import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.pserver.steps.staleness import Pace

A, B, C = range(3)


def at(pace, clocks):
    for index in clocks:
        pace.enter(index)
    for index, steps in clocks.items():
        for _ in range(steps):
            pace.step(index)
    return pace


def test_one_ahead_of_the_bound_waits_until_the_slowest_steps():
    pace = at(Pace(1), {A: 3, B: 1})
    assert not pace.may_pull(A)
    pace.step(B)
    assert pace.may_pull(A)


@pytest.mark.parametrize("go", [Pace.forget, Pace.leave])
def test_nobody_waits_for_one_that_is_gone_or_has_nothing_to_push(go):
    pace = at(Pace(1), {A: 3, B: 1})
    go(pace, B)
    assert pace.may_pull(A)


def test_a_newcomer_begins_beside_the_slowest():
    pace = at(Pace(1), {A: 30, B: 29})
    pace.enter(C)
    assert pace.may_pull(A)
    assert pace.may_pull(C)


def test_without_a_bound_nobody_waits():
    assert at(Pace(), {A: 1000, B: 0}).may_pull(A)


@pytest.mark.parametrize(("staleness", "scale"), [(0, 1.0), (1, 1.0), (4, 0.25)])
def test_a_stale_step_counts_less(staleness, scale):
    assert Pace().scale(A, 10, staleness) == scale


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.sampled_from([None, 2]))
def test_the_steps_of_a_round_count_as_their_mean_by_samples(samples, bound):
    pace = Pace(bound)
    for index, count in enumerate(samples):
        pace.scale(index, count, 0)
    scales = [pace.scale(index, count, 0) for index, count in enumerate(samples)]
    whole = 1 if bound is not None else len(samples)
    assert scales == pytest.approx([count / sum(samples) * whole for count in samples])


@pytest.mark.invariant(
    "The schedule of the learning rate counts a round of all trainers as one step where they share it."
)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.integers(1, 5))
def test_with_a_bound_a_round_of_all_trainers_is_one_step_of_a_schedule(samples, rounds):
    pace = Pace(2)
    pace.resume({}, dict(enumerate(samples)), 0.0)
    for _ in range(rounds):
        for index, count in enumerate(samples):
            pace.scale(index, count, 0)
    assert pace.rounds(version=len(samples) * rounds) == pytest.approx(rounds)


def test_without_a_bound_every_update_is_a_step_of_a_schedule():
    pace = Pace()
    pace.scale(A, 10, 0)
    assert pace.rounds(version=7) == 7


class PaceMachine(RuleBasedStateMachine):
    """Trainers that pull before each step, as training code does, and join and leave in any order."""

    @initialize(bound=st.integers(0, 3))
    def launch(self, bound):
        self.bound = bound
        self.pace = Pace(bound)
        self.clocks = {}

    @rule(index=st.integers(0, 4))
    def enter(self, index):
        self.pace.enter(index)
        self.clocks[index] = min((clock for other, clock in self.clocks.items()), default=0)

    @precondition(lambda self: self.clocks)
    @rule(data=st.data(), leaves=st.booleans())
    def go(self, data, leaves):
        index = data.draw(st.sampled_from(sorted(self.clocks)))
        (self.pace.forget if leaves else self.pace.leave)(index)
        del self.clocks[index]

    @precondition(lambda self: self.clocks)
    @rule(data=st.data())
    def pull_and_push(self, data):
        index = data.draw(st.sampled_from([index for index in sorted(self.clocks) if self.pace.may_pull(index)]))
        assert self.clocks[index] <= min(self.clocks.values()) + self.bound
        self.pace.step(index)
        self.clocks[index] += 1

    @invariant()
    def the_slowest_never_waits(self):
        slowest = [index for index, clock in self.clocks.items() if clock == min(self.clocks.values())]
        assert all(self.pace.may_pull(index) for index in slowest)

    @invariant()
    def all_are_within_the_bound_and_the_current_step(self):
        clocks = self.clocks.values() or [0]
        assert max(clocks) - min(clocks) <= self.bound + 1


TestPace = PaceMachine.TestCase
