"""A clock of the machine that jumps: the portal's time does not."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from portal.common import clock
from portal.common.clock import JUMP_SECONDS, RATE, SteadyClock

HOUR = 3600.0
BEGIN = 1_800_000_000.0


class Machine:
    """The clocks of a machine: time passes on both, and the first one can be set."""

    def __init__(self) -> None:
        self.wall, self.elapsed = BEGIN, 500.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.elapsed)

    def passes(self, seconds: float) -> float:
        """Let time pass; return the seconds that the portal's time has then advanced since the beginning."""
        self.wall += seconds
        self.elapsed += seconds
        return self.clock.time() - BEGIN


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_without_a_jump_it_is_the_clock_of_the_machine(machine: Machine) -> None:
    assert machine.passes(100) == 100
    assert machine.clock.time() == machine.wall


@pytest.mark.invariant("A jump of the machine's clock by an hour moves no deadline of the portal by more than a tenth.")
@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_is_not_seen_and_no_time_passes_backwards(machine: Machine, jump: float) -> None:
    machine.wall += jump
    shown = [machine.passes(1) for _ in range(60)]
    assert shown == sorted(shown)
    assert shown[0] == pytest.approx(1, abs=RATE + 0.01)
    assert shown[-1] == pytest.approx(60, abs=60 * RATE + 0.01)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_it_agrees_with_the_machine_again_after_ten_times_the_jump(machine: Machine, jump: float) -> None:
    machine.wall += jump
    for _ in range(10 * 60):
        machine.passes(60)
    assert machine.clock.time() == pytest.approx(machine.wall, abs=JUMP_SECONDS)
    machine.passes(60)
    assert machine.clock.time() == machine.wall


def test_a_jump_that_is_corrected_leaves_no_trace(machine: Machine) -> None:
    machine.wall += HOUR
    machine.passes(10)
    machine.wall -= HOUR
    assert machine.passes(10) == pytest.approx(20, abs=0.1)


def test_small_corrections_of_a_time_service_are_followed_at_once(machine: Machine) -> None:
    machine.wall += JUMP_SECONDS - 0.1
    assert machine.passes(0) == pytest.approx(JUMP_SECONDS - 0.1)


def test_a_machine_that_was_suspended_did_not_jump(machine: Machine) -> None:
    assert machine.passes(8 * HOUR) == 8 * HOUR


def test_a_jump_is_logged_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.wall += HOUR
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            machine.passes(1)
    assert [record.getMessage() for record in caplog.records] == [
        "The clock of this machine jumped by +3600 s. The portal follows it slowly."
    ]


def test_the_present_time_has_its_time_zone() -> None:
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=JUMP_SECONDS)
