"""Of several sweeps one makes the passes, and another continues when it ends, is killed or hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from portal.models import SweepLease
from portal.operations import sweep_lease
from portal.operations.sweep_lease import EVERY_SECONDS, LENGTH_SECONDS, Lease, identity, is_gone

pytestmark = pytest.mark.django_db


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def first(clock: Clock) -> Lease:
    return Lease("pod-a/1", clock)


@pytest.fixture
def second(clock: Clock) -> Lease:
    return Lease("pod-b/1", clock)


def turns(clock: Clock, seconds: float, *leases: Lease) -> None:
    """Let the leases look every second."""
    for _ in range(int(seconds / EVERY_SECONDS)):
        clock.now += EVERY_SECONDS
        for lease in leases:
            lease.look()


@pytest.mark.invariant("Of several sweeps one makes the passes, and another continues seconds after it was killed.")
def test_one_of_two_sweeps_holds_the_lease(first: Lease, second: Lease, clock: Clock) -> None:
    turns(clock, 60, first, second)
    assert (first.is_held(), second.is_held()) == (True, False)


def test_the_other_continues_within_seconds_of_a_kill(first: Lease, second: Lease, clock: Clock) -> None:
    turns(clock, 10, first, second)
    turns(clock, LENGTH_SECONDS + EVERY_SECONDS, second)
    assert (first.is_held(), second.is_held()) == (False, True)


def test_the_other_waits_for_the_length_of_the_lease(first: Lease, second: Lease, clock: Clock) -> None:
    turns(clock, 10, first, second)
    turns(clock, LENGTH_SECONDS - EVERY_SECONDS, second)
    assert not second.is_held()


def test_an_orderly_end_frees_the_lease_at_once(first: Lease, second: Lease, clock: Clock) -> None:
    turns(clock, 10, first, second)
    first.resign()
    turns(clock, EVERY_SECONDS, second)
    assert (first.is_held(), second.is_held()) == (False, True)


def test_a_sweep_that_was_replaced_does_not_take_the_lease_back(first: Lease, second: Lease, clock: Clock) -> None:
    turns(clock, 10, first, second)
    turns(clock, 10, second)
    turns(clock, 60, first, second)
    assert (first.is_held(), second.is_held()) == (False, True)


def test_two_that_take_a_free_lease_at_once_do_not_both_get_it(first: Lease, second: Lease, clock: Clock) -> None:
    SweepLease.objects.create(holder="pod-c/1", revision=7)
    for lease in (first, second):
        lease.look()
    clock.now += LENGTH_SECONDS
    seen = SweepLease.objects.values_list("holder", "revision").get()
    first.look()
    second._change(*seen, clock.now)  # it read before the first one wrote
    assert (first.is_held(), second.is_held()) == (True, False)


def test_the_holder_of_an_interrupted_database_stops_by_its_own_clock(first: Lease, clock: Clock) -> None:
    turns(clock, 10, first)
    clock.now += LENGTH_SECONDS
    assert not first.is_held()


def test_a_clock_that_differs_between_machines_is_of_no_concern(first: Lease, clock: Clock) -> None:
    turns(clock, 10, first)
    ahead = Clock()
    ahead.now = clock.now + 3600
    other = Lease("pod-b/1", ahead)
    for _ in range(10):
        turns(clock, EVERY_SECONDS, first)
        turns(ahead, EVERY_SECONDS, other)
    assert not other.is_held()


def test_a_process_of_this_machine_that_has_ended_holds_nothing(first: Lease, clock: Clock) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = identity().rpartition("/")[0]
    SweepLease.objects.create(holder=f"{host}/{ended.pid}", revision=7)
    first.look()
    assert first.is_held()
    assert not is_gone(f"{host}/{os.getppid()}")
    assert not is_gone(f"elsewhere/{ended.pid}")


def test_a_sweep_whose_loop_hangs_frees_the_lease(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    loop = sweep_lease.heartbeat.Heartbeat()
    lease = Lease("pod-a/1")
    monkeypatch.setattr(lease, "look", lambda: calls.append("look"))
    monkeypatch.setattr(lease, "resign", lambda: calls.append("resign"))
    keeper = sweep_lease.LeaseKeeper(lease, loop)
    keeper.turn()
    loop._last = loop.last() - sweep_lease.STUCK_SECONDS - 1
    keeper.turn()
    assert calls == ["look", "resign"]
