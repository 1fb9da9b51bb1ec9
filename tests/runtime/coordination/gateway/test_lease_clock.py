"""When the gateway ends a lease: by what it has passed on, and by what etcd answers."""

from __future__ import annotations

import pytest

from runtime.coordination.gateway.lease_clock import LeaseClock

LEASE, ACCOUNT, SECONDS, HELD = 7, "regatta-a-job-1", 10, 130


@pytest.fixture
def clock() -> LeaseClock:
    """A clock with one lease of 10 seconds, which etcd keeps for 130, granted at 0."""
    made = LeaseClock()
    made.kept(LEASE, ACCOUNT, SECONDS, now=0.0)
    return made


def overdue(clock: LeaseClock, now: float) -> list[int]:
    return [one.lease for one in clock.overdue(now)]


def test_a_lease_is_overdue_after_its_time(clock: LeaseClock) -> None:
    assert overdue(clock, 10.0) == []
    assert overdue(clock, 10.1) == [LEASE]


def test_a_kept_lease_is_not_overdue(clock: LeaseClock) -> None:
    clock.kept(LEASE, ACCOUNT, SECONDS, now=9.0)
    assert overdue(clock, 18.9) == []
    assert overdue(clock, 19.1) == [LEASE]


def test_a_lease_that_is_gone_is_not_overdue(clock: LeaseClock) -> None:
    clock.gone(LEASE)
    assert overdue(clock, 100.0) == []
    assert not clock.must_end(LEASE, HELD, 1, now=100.0)


def test_a_lease_that_nobody_kept_must_end(clock: LeaseClock) -> None:
    assert clock.must_end(LEASE, HELD, left=HELD - 12, now=12.0)


def test_a_lease_is_not_ended_before_its_time_because_etcd_rounds(clock: LeaseClock) -> None:
    """At 10.5 s etcd answers 119 of 130 seconds: it was kept 10.5 to 11.5 s before."""
    clock.kept(LEASE, ACCOUNT, SECONDS, now=0.0)
    assert not clock.must_end(LEASE, HELD, left=119, now=10.5 + 0.4)


@pytest.mark.invariant("A gateway does not end a lease that another one keeps alive.")
def test_a_lease_that_another_replica_kept_goes_on(clock: LeaseClock) -> None:
    assert not clock.must_end(LEASE, HELD, left=HELD - 3, now=12.0)
    assert overdue(clock, 12.0) == []
    assert overdue(clock, 21.0) == [LEASE]


@pytest.mark.invariant("After an outage of etcd or of the gateway, holders have the whole time of a lease to return.")
def test_after_a_disturbance_holders_have_the_whole_time_again(clock: LeaseClock) -> None:
    clock.disturbed(now=60.0)
    assert overdue(clock, 69.9) == []
    assert not clock.must_end(LEASE, HELD, left=HELD - 69, now=69.9)
    assert clock.must_end(LEASE, HELD, left=HELD - 71, now=71.0)
