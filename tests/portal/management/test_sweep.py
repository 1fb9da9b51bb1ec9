from __future__ import annotations

from datetime import datetime

import pytest

from portal.management.commands.sweep import LONGEST_PAUSE, pause_after, repeat


def pauses_of(outcomes: list[bool]) -> list[float]:
    """Return the pauses before each sweep, when sweeps succeed or fail as given; the last pause ends the loop."""
    pauses: list[float] = []
    left = iter(outcomes)

    def sweep(now: datetime) -> None:
        if not next(left):
            raise RuntimeError("the database is away")

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
