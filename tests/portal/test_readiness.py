from __future__ import annotations

import pytest

from portal.readiness import NEVER, lost_since, ready


def test_a_process_whose_database_answers_is_ready() -> None:
    assert ready(lost_since(NEVER, True, 0.0), 0.0, tolerance=30)


@pytest.mark.parametrize(("seconds", "expected"), [(0, True), (29.9, True), (30, False), (1000, False)])
def test_a_lost_database_is_tolerated_from_its_first_silence_on(seconds: float, expected: bool) -> None:
    since = lost_since(None, False, 100.0)
    assert ready(lost_since(since, False, 100.0 + seconds), 100.0 + seconds, tolerance=30) is expected


def test_the_time_begins_anew_after_an_answer() -> None:
    since = lost_since(lost_since(lost_since(None, False, 0.0), True, 20.0), False, 40.0)
    assert ready(since, 60.0, tolerance=30)


@pytest.mark.invariant("A web process that never reached its database is not ready.")
def test_a_process_that_never_reached_its_database_is_not_ready() -> None:
    assert not ready(lost_since(NEVER, False, 1.0), 1.0, tolerance=30)


def test_without_tolerance_a_silence_ends_readiness_at_once() -> None:
    assert not ready(lost_since(None, False, 1.0), 1.0, tolerance=0)
