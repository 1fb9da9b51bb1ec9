"""The age of batches follows the load of the process, within its limits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.common.request_load import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    WINDOW_SECONDS,
    RequestLoad,
    Sample,
    next_age,
)

AGES = st.floats(SHORTEST_SECONDS, LONGEST_SECONDS)


class Process:
    """A process whose clocks are set."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.load = RequestLoad(lambda: self.now, lambda: self.used)

    def spend(self, cpu: float) -> float:
        """Let a window pass with this CPU time a second; return the age of batches after it."""
        self.now += WINDOW_SECONDS
        self.used += WINDOW_SECONDS * cpu
        return self.load.batch_seconds()


@pytest.mark.parametrize(
    ("cpu", "waiting", "age"),
    [
        pytest.param(0.9, 0, 0.4, id="busy"),
        pytest.param(0.0, 50, 0.4, id="crowded"),
        pytest.param(0.5, 0, 0.2, id="between"),
        pytest.param(0.1, 10, 0.2, id="some requests"),
        pytest.param(0.1, 0, 0.2, id="idle"),
    ],
)
def test_the_shortest_age_doubles_under_load(cpu: float, waiting: int, age: float) -> None:
    assert next_age(SHORTEST_SECONDS, Sample(cpu, waiting)) == pytest.approx(age)


@given(AGES, st.floats(0, 8), st.integers(0, 1000))
def test_the_age_stays_within_its_limits(age: float, cpu: float, waiting: int) -> None:
    assert SHORTEST_SECONDS <= next_age(age, Sample(cpu, waiting)) <= LONGEST_SECONDS


@given(AGES, st.floats(0, 8), st.floats(0, 8), st.integers(0, 100), st.integers(0, 100))
def test_more_load_never_shortens_the_age(age: float, cpu: float, more: float, waiting: int, others: int) -> None:
    assert next_age(age, Sample(cpu + more, waiting + others)) >= next_age(age, Sample(cpu, waiting))


def test_a_process_at_rest_has_the_shortest_age() -> None:
    assert Process().load.batch_seconds() == SHORTEST_SECONDS


def test_the_age_grows_while_the_process_is_busy_and_shrinks_afterwards() -> None:
    process = Process()
    grown = [process.spend(0.95) for _ in range(8)]
    assert grown == sorted(grown)
    assert grown[-1] == LONGEST_SECONDS
    assert [process.spend(0.05) for _ in range(8)][-1] == SHORTEST_SECONDS


def test_the_age_changes_once_in_a_window() -> None:
    process = Process()
    first = process.spend(0.95)
    process.now += WINDOW_SECONDS / 2
    process.used += 10.0
    assert process.load.batch_seconds() == first


def test_requests_that_wait_for_something_else_than_a_processor_count() -> None:
    process = Process()
    with ExitStack() as requests:
        for _ in range(50):
            requests.enter_context(process.load.request())
    assert process.spend(0.0) > SHORTEST_SECONDS
    assert process.spend(0.0) == SHORTEST_SECONDS
