"""Behaviour of a lease's holder when the store does not answer: strictly, and with an allowed outage."""

from __future__ import annotations

from runtime.coordination.base import Lease, StoreUnavailable
from runtime.messages import training as messages

TTL, MARGIN = 10.0, 2.0


class Store:
    """Store that answers keepalives with ``known``, or not at all while it is None."""

    def __init__(self) -> None:
        self.now = 0.0
        self.known: bool | None = True

    def keep(self) -> bool:
        if self.known is None:
            raise StoreUnavailable("The store is away.")
        return self.known

    def lease(self, reasons: list[str], outage: float) -> Lease:
        return Lease(7, TTL, self.now, lambda: self.now, self.keep, lambda: None, reasons.append, outage)

    def stay_away(self, lease: Lease, seconds: float) -> None:
        """Run the lease's thread on the test's clock while the store does not answer."""
        self.known, until = None, self.now + seconds
        while self.now < until:
            self.now += max(0.1, lease.beat())


def test_the_strict_holder_stops_before_its_deadline():
    store, reasons = Store(), []
    lease = store.lease(reasons, outage=0.0)
    store.stay_away(lease, TTL)
    assert reasons == [messages.KEEPALIVE_UNANSWERED()]
    assert not lease.alive


def test_with_an_outage_the_holder_goes_on_for_so_long_and_no_longer():
    store, reasons = Store(), []
    lease = store.lease(reasons, outage=60.0)
    store.stay_away(lease, TTL + 57.0)
    assert (reasons, lease.alive) == ([], True)
    store.stay_away(lease, 2.0)
    assert (reasons, lease.alive) == ([messages.KEEPALIVE_UNANSWERED()], False)


def test_a_store_that_returns_with_the_lease_restores_its_full_time_to_live():
    store, reasons = Store(), []
    lease = store.lease(reasons, outage=60.0)
    store.stay_away(lease, 50.0)
    store.known = True
    lease.beat()
    assert lease.fence_at == store.now + TTL - MARGIN + 60.0
    assert reasons == []


def test_a_store_that_comes_back_and_has_ended_the_lease_is_believed_at_once():
    store, reasons = Store(), []
    lease = store.lease(reasons, outage=60.0)
    store.stay_away(lease, 50.0)
    store.known = False
    lease.beat()
    assert (reasons, lease.alive) == ([messages.LEASE_ENDED()], False)
