import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages import training as messages
from runtime.parameters import optimisers
from runtime.parameters.lr_schedules import Constant, Cosine, Linear, Steps, WarmUp, from_json
from runtime.parameters.optimisers import SGD, Adam
from tests.messages import either, pattern

VALUES = [
    (Constant(0.1), {0: 0.1, 1000: 0.1}),
    (Linear(1.0, 0.0, 10), {0: 1.0, 5: 0.5, 10: 0.0, 11: 0.0}),
    (Linear(0.0, 2.0, 4), {0: 0.0, 1: 0.5, 9: 2.0}),
    (Steps(0.8, 0.5, 3), {0: 0.8, 2: 0.8, 3: 0.4, 6: 0.2}),
    (Cosine(1.0, 0.0, 4), {0: 1.0, 2: 0.5, 4: 0.0, 9: 0.0}),
    (WarmUp(4, 0.4), {0: 0.1, 1: 0.2, 3: 0.4, 4: 0.4}),
    (WarmUp(2, Steps(1.0, 0.5, 2)), {0: 0.5, 1: 1.0, 2: 0.5}),
]


@pytest.mark.parametrize(("schedule", "expected"), VALUES)
def test_a_schedule_gives_its_rates(schedule, expected):
    assert {updates: schedule.at(updates) for updates in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("schedule", "_expected"), VALUES)
def test_a_schedule_survives_the_wire_in_its_optimiser(schedule, _expected):
    rule = Adam(schedule)
    assert optimisers.from_json(rule.to_json()) == rule


def test_the_first_update_has_the_first_rate():
    rule = SGD(Linear(1.0, 0.0, 2))
    assert [rule.rate(step) for step in (1, 2, 3)] == [1.0, 0.5, 0.0]


@given(
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 10**6),
    st.integers(0, 10**7),
    st.sampled_from([Linear, Cosine]),
)
def test_a_rate_stays_between_its_ends(first, last, length, updates, kind):
    low, high = sorted((first, last))
    assert low * (1 - 1e-9) - 1e-9 <= kind(first, last, length).at(updates) <= high * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    "make",
    [lambda: Linear(-1, 0, 10), lambda: Linear(1, 0, 0), lambda: Steps(1, float("nan"), 3), lambda: WarmUp(1.5, 0.1)],
)
def test_numbers_that_make_no_schedule_are_refused(make):
    with pytest.raises(ValueError, match=either(messages.UPDATES_INVALID, messages.LEARNING_RATE_INVALID)):
        make()


def test_an_unknown_schedule_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=pattern(messages.SCHEDULE_UNKNOWN, name="'Magic'")):
        from_json({"name": "Magic"})
