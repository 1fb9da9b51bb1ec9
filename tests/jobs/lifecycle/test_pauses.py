"""Pauses: their time, and how the trainers come to the same step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.lifecycle.pauses import Pause, Standing, is_done, target_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_the_time_of_all_pauses_counts_until_now() -> None:
    first = Pause.begin(None, "ada", "native", NOW)
    assert first.total(at(10)) == timedelta(seconds=10)
    over = first.resume("ada", at(20))
    assert over.total(at(500)) == timedelta(seconds=20)
    second = Pause.begin(over, "ada", "torch", at(100))
    assert (second.total(at(130)), second.how) == (timedelta(seconds=50), "signal")
    assert Pause.from_json(second.to_json()) == second


@pytest.mark.parametrize(
    ("found", "on", "done"),
    [
        ([(True, 5), (True, 5), (True, None)], True, True),
        ([(True, 5), (True, 6)], True, False),
        ([(True, 5), (False, 5)], True, False),
        ([(False, 5), (False, None)], False, True),
        ([(False, 5), (True, 5)], False, False),
    ],
)
def test_a_pause_is_done_when_all_stand_at_the_same_version(
    found: list[tuple[bool, int | None]], on: bool, done: bool
) -> None:
    assert is_done([Standing(*one) for one in found], on) is done


@pytest.mark.parametrize(
    ("found", "target"),
    [
        ([(True, 5), (True, 5)], 5),
        # It waits in its step for the other, which stands before the same one.
        ([(True, 5), (False, 5)], 6),
        # It is on the way to the step at which the other stands.
        ([(True, 6), (False, 5)], 6),
        ([(True, 5), (True, 6)], 6),
        ([(False, None), (True, None)], 0),
    ],
)
def test_those_who_stand_go_on_as_far_as_others_need_them(found: list[tuple[bool, int | None]], target: int) -> None:
    assert target_of([Standing(*one) for one in found]) == target


def test_a_pause_begins_after_the_one_before_although_a_clock_is_slow() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = Pause.begin(None, "ada", "native", now).resume("ada", now)
    assert Pause.begin(first, "ada", "native", now - timedelta(seconds=5)).since > first.since
