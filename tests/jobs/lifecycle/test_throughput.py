"""Speed of a job by its number of trainers, from metrics and events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.lifecycle.throughput import SETTLING, Number, ReplicaEvent, by_trainers, trainer_counts


def rates(begin: float, end: float, rate: float) -> list[tuple[float, float]]:
    """Return one rate per second."""
    return [(begin + second, rate) for second in range(int(end - begin))]


def test_each_number_of_trainers_has_the_speed_that_was_measured_with_it() -> None:
    measured = [*rates(0, 60, 100.0), *rates(60, 120, 180.0)]
    assert by_trainers(measured, [Number(0, 1), Number(60, 2)], 120) == {1: 100.0, 2: 180.0}


def test_measurements_while_trainers_come_and_go_count_for_no_number() -> None:
    measured = [*rates(0, 60, 100.0), *rates(60, 60 + SETTLING, 1.0), *rates(60 + SETTLING, 120, 180.0)]
    assert by_trainers(measured, [Number(0, 1), Number(60, 2)], 120)[2] == 180.0


def test_a_number_of_trainers_for_a_moment_has_no_speed() -> None:
    measured = rates(0, 100, 100.0)
    counts = [Number(0, 1), Number(60, 2), Number(60 + SETTLING + 4, 3)]
    assert set(by_trainers(measured, counts, 100)) == {1, 3}
    assert by_trainers(measured, counts, 60 + SETTLING + 4 + SETTLING + 4) == {1: 100.0}


def test_of_a_repeated_number_of_trainers_the_latest_period_counts() -> None:
    measured = [*rates(0, 60, 100.0), *rates(60, 120, 180.0), *rates(120, 180, 70.0)]
    assert by_trainers(measured, [Number(0, 1), Number(60, 2), Number(120, 1)], 180) == {1: 70.0, 2: 180.0}


def test_one_stall_does_not_make_a_job_slow() -> None:
    assert by_trainers([*rates(0, 40, 100.0), (40.0, 0.0)], [Number(0, 1)], 41) == {1: 100.0}


def test_without_measurements_there_is_no_speed() -> None:
    assert by_trainers([], [Number(0, 4)], 1000) == {}
    assert by_trainers(rates(0, 60, 5.0), [], 60) == {}


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, 1e6)), max_size=60), st.lists(st.integers(1, 5), max_size=4))
def test_speeds_are_within_the_measured_range_and_of_observed_numbers(
    measured: list[tuple[float, float]], trainers: list[int]
) -> None:
    counts = [Number(40.0 * place, count) for place, count in enumerate(trainers)]
    found = by_trainers(sorted(measured), counts, 200.0)
    assert set(found) <= set(trainers)
    assert all(min(r for _, r in measured) <= speed <= max(r for _, r in measured) for speed in found.values())


# --- Working trainers ------------------------------------------------------------------------------------------------
def test_trainers_count_from_registration_to_their_end() -> None:
    events = [
        ReplicaEvent(1, "registered", "trainer-0"),
        ReplicaEvent(2, "registered", "trainer-1"),
        ReplicaEvent(3, "registered", "trainer-1"),
        ReplicaEvent(5, "lost", "trainer-0"),
        ReplicaEvent(6, "restarted", "trainer-0"),
        ReplicaEvent(7, "registered", "trainer-0"),
        ReplicaEvent(9, "exited", "trainer-1"),
    ]
    assert trainer_counts(events) == [Number(1, 1), Number(2, 2), Number(5, 1), Number(7, 2), Number(9, 1)]
    assert trainer_counts([]) == []


def test_a_trainer_counts_only_from_its_registration() -> None:
    measured = [*rates(0, 120, 100.0), *rates(120, 180, 200.0)]  # the second was requested after 60 s
    counts = trainer_counts([ReplicaEvent(0, "registered", "trainer-0"), ReplicaEvent(120, "registered", "trainer-1")])
    assert by_trainers(measured, counts, 180) == {1: 100.0, 2: 200.0}
