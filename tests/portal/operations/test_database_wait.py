"""The wait for a database that does not answer when the portal starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import OperationalError

from portal.operations.database_wait import SECONDS, wait_for_database


class Clock:
    """A clock that only a pause moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def silent_until(clock: Clock, moment: float) -> Callable[[], None]:
    """Return a connect that fails until the moment."""

    def connect() -> None:
        if clock.now < moment:
            raise OperationalError("connection refused\n  Is the server running?")

    return connect


def test_it_returns_as_soon_as_the_database_answers() -> None:
    clock, lines = Clock(), list[str]()
    wait_for_database(silent_until(clock, 103.0), lines.append, clock=clock, pause=clock.pause)
    assert clock.now == 103.0
    assert lines == ["The database does not answer yet: connection refused Is the server running?"]


def test_a_database_that_answers_at_once_is_not_mentioned() -> None:
    clock, lines = Clock(), list[str]()
    wait_for_database(silent_until(clock, 0.0), lines.append, clock=clock, pause=clock.pause)
    assert (clock.now, lines) == (100.0, [])


def test_a_long_wait_is_reported_every_fifteen_seconds() -> None:
    clock, lines = Clock(), list[str]()
    wait_for_database(silent_until(clock, 140.0), lines.append, clock=clock, pause=clock.pause)
    assert len(lines) == 3


def test_a_database_that_never_answers_is_an_error_with_its_reason() -> None:
    clock = Clock()
    with pytest.raises(OperationalError, match="connection refused"):
        wait_for_database(silent_until(clock, float("inf")), str, clock=clock, pause=clock.pause)
    assert clock.now == 100.0 + SECONDS
