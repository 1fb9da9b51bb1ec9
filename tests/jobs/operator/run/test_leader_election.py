"""Leader election: of several controllers one acts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs.operator.client.api import Refusal
from jobs.operator.run.leader_election import LASTS, RENEWED_WITHIN, Election, Fenced
from tests.jobs.operator.api_servers import FaithfulServer, RefusingServer
from tests.jobs.operator.world import START


class Candidates:
    """Controllers on machines whose clocks are an hour apart."""

    def __init__(self, server: FaithfulServer | None = None) -> None:
        self.server = server or FaithfulServer()
        self.seconds = 0.0
        self.first, self.second = (self._candidate(name, off) for name, off in (("first", 0), ("second", 3600)))

    def _candidate(self, identity: str, off: int) -> Election:
        return Election(
            self.server,
            "system",
            "lease",
            identity,
            lambda: self.seconds,
            lambda: START + timedelta(seconds=self.seconds + off),
        )

    @property
    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.server.objects["Lease", "system", "lease"]["spec"]
        return spec


class SlowServer(FaithfulServer):
    """API server that answers after half of the time in which a Lease must be renewed."""

    def __init__(self, candidates: Candidates) -> None:
        super().__init__()
        candidates.server = self
        self._candidates = candidates

    def call(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        self._candidates.seconds += RENEWED_WITHIN / 2
        return super().call(*arguments, **named)


def test_the_first_to_come_leads_and_stays_while_it_renews() -> None:
    both = Candidates()
    assert (both.first.campaign(), both.second.campaign()) == (True, False)
    for _ in range(100):
        both.seconds += 2
        assert (both.first.campaign(), both.second.campaign()) == (True, False)
    assert (both.lease["holderIdentity"], both.lease["leaseTransitions"]) == ("first", 1)


def test_another_takes_over_when_nothing_was_renewed_for_as_long_as_the_lease_lasts() -> None:
    both = Candidates()
    both.first.campaign()
    assert not both.second.campaign()
    both.seconds += LASTS - 0.1
    assert not both.second.campaign()
    both.seconds += 0.1
    assert both.second.campaign()
    assert not both.first.leads
    assert not both.first.campaign()


@pytest.mark.invariant("At most one controller acts at a time.")
def test_a_leader_that_cannot_renew_stops_before_another_may_begin() -> None:
    both = Candidates(RefusingServer(Refusal(0, "Unreachable"), lambda verb, kind: False))
    both.first.campaign()
    both.second.campaign()
    both.server.refuses = lambda verb, kind: True  # type: ignore[attr-defined]
    while both.first.campaign():
        both.seconds += 1
    assert both.seconds == RENEWED_WITHIN < LASTS


def test_after_a_resignation_another_leads_at_once() -> None:
    both = Candidates()
    both.first.campaign()
    both.first.resign()
    assert both.second.campaign()


def test_a_lease_that_another_holds_by_now_is_left_to_it() -> None:
    both = Candidates()
    both.first.campaign()
    both.lease["holderIdentity"] = "second"
    both.first.resign()
    assert both.lease["holderIdentity"] == "second"


def test_the_lease_counts_from_before_it_was_requested() -> None:
    both = Candidates()
    both.first = Election(SlowServer(both), "system", "lease", "first", lambda: both.seconds, lambda: START)
    assert not both.first.campaign()
    assert both.lease["holderIdentity"] == "first"


@pytest.mark.invariant("At most one controller acts at a time.")
def test_of_two_concurrent_writers_one_leads() -> None:
    both = Candidates()
    both.first.campaign()
    both.second.campaign()
    both.seconds += LASTS
    lease = both.server.call("GET", "/apis/coordination.k8s.io/v1/namespaces/system/leases/lease")
    assert both.second.campaign()
    assert not both.first._write("PUT", lease, "first")


def test_a_former_leader_writes_nothing_more() -> None:
    both = Candidates()
    fenced = Fenced(both.server, lambda: both.first.leads)
    path = "/api/v1/namespaces/team/pods"
    both.first.campaign()
    fenced.call("POST", path, {"metadata": {"name": "a"}})
    both.seconds += RENEWED_WITHIN
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(Refusal, match="NotLeading"):
            fenced.call(method, f"{path}/a", {"metadata": {"name": "a"}})
    assert fenced.call("GET", f"{path}/a")["metadata"]["name"] == "a"
