from __future__ import annotations

from datetime import datetime

import psycopg
import pytest
from django.db import OperationalError

from portal.common.monitoring import heartbeat, metrics
from portal.common.monitoring.heartbeat import Heartbeat
from portal.management.commands.sweep import LONGEST_PAUSE, LOST_PAUSE, Passes, pause_after, repeat


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lost() -> OperationalError:
    error = OperationalError("connection refused")
    error.__cause__ = psycopg.OperationalError("connection refused")
    return error


def pauses_of(outcomes: list[bool], failure: Exception | None = None) -> list[float]:
    """Return the pauses before each sweep, when sweeps succeed or fail as given; the last pause ends the loop."""
    pauses: list[float] = []
    left = iter(outcomes)

    def sweep(now: datetime) -> None:
        if not next(left):
            raise failure or RuntimeError("the disk is full")

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > len(outcomes)

    repeat(sweep, every=1.0, wait=wait)
    return pauses


def test_a_sweep_that_fails_is_followed_by_another_later() -> None:
    assert pauses_of([True, False, False, True, True]) == [1, 1, 2, 4, 1, 1]


def test_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pauses_of([False])
    assert "The sweep failed (1 in a row); the next one is in 2 s." in caplog.text


def test_the_pause_has_an_end() -> None:
    assert pause_after(1000, 1.0) == LONGEST_PAUSE


def test_a_failed_pass_is_counted() -> None:
    errors = metrics.SWEEP_ERRORS.labels("pass")
    before = errors._value.get()
    pauses_of([False, True])
    assert errors._value.get() == before + 1


def test_the_age_counts_from_the_end_of_the_last_pass() -> None:
    clock = Clock()
    passes = Passes(clock)
    with passes.measured():
        clock.now += 40
    clock.now += 7
    assert passes.age() == 7


def test_a_pass_that_does_not_end_grows_old() -> None:
    clock = Clock()
    passes = Passes(clock)
    with passes.measured():
        clock.now += 400
        assert passes.age() == 400


def test_a_pass_that_fails_ends_too_and_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(heartbeat, "OF_PROCESS", Heartbeat(clock))
    passes = Passes(clock)
    with pytest.raises(RuntimeError), passes.measured():
        clock.now += 40
        raise RuntimeError("the database is away")
    assert (passes.age(), heartbeat.OF_PROCESS.last()) == (0, clock.now)


# --- A lost database -------------------------------------------------------------------------------------------------
def test_a_lost_database_is_looked_for_at_short_pauses() -> None:
    assert pauses_of([False] * 10 + [True, True], lost())[1:] == [LOST_PAUSE] * 10 + [1, 1]


def test_it_is_noted_once_when_it_is_lost_and_once_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    pauses_of([True, False, False, False, True, True], lost())
    said = [record.getMessage().split(";")[0] for record in caplog.records]
    assert said == ["The database is lost", "The database answers again"]


def test_it_is_noted_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    pauses_of([False, True], lost())
    assert "Traceback" not in caplog.text
