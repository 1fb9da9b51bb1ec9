"""Heartbeats: when a process counts as one that hangs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from portal.common.monitoring.heartbeat import LIMIT_SECONDS, Health, Heartbeat, health, oldest

SECONDS = st.floats(-1e6, 1e6)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_process_is_alive_up_to_the_limit() -> None:
    assert health(last=10, now=15, limit=5) == Health(alive=True, age=5)


def test_a_process_whose_heartbeat_is_older_than_the_limit_hangs() -> None:
    assert health(last=10, now=15.1, limit=5).alive is False


@given(SECONDS, SECONDS)
def test_an_age_is_never_negative(last: float, now: float) -> None:
    assert health(last, now, 1).age >= 0


def test_a_heartbeat_counts_from_the_start_of_the_process() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    clock.now += 7
    assert clock.now - heartbeat.last() == 7


def test_a_beat_sets_the_age_to_zero() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    clock.now += 7
    heartbeat.beat()
    assert heartbeat.last() == clock.now


def test_a_paused_process_is_alive_however_long_it_waits() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.pause()
    clock.now += 10 * LIMIT_SECONDS
    assert oldest([heartbeat.last], clock)() == Health(alive=True, age=0)


def test_a_beat_ends_a_pause() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.pause()
    heartbeat.beat()
    clock.now += LIMIT_SECONDS + 1
    assert oldest([heartbeat.last], clock)().alive is False


def test_the_oldest_of_several_activities_decides() -> None:
    clock = Clock()
    assert oldest([lambda: clock.now, lambda: clock.now - LIMIT_SECONDS - 1], clock)().alive is False
