"""Starts that the cluster makes without the portal: grants in advance, and their adoption."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.cluster_starts import Adoption, adoptions, limits
from jobs.lifecycle.replica_facts import RESTARTS, ReplicaFact
from jobs.lifecycle.states import JobState, ReplicaState
from tests.jobs.lifecycle.replicas import exited, job, killed, replica, spent
from tests.properties import examples


def view(*replicas: ReplicaView) -> AttemptView:
    return AttemptView(False, replicas)


def seen(name: str = "trainer-0", start_number: int = 1, granted: int | None = 0) -> ReplicaView:
    return ReplicaView(name, Phase.RUNNING, start_number=start_number, granted=granted)


def adopted(fact: ReplicaFact, start_number: int = 2, **fields: object) -> list[Adoption]:
    return adoptions(job(**fields), [fact], view(seen(fact.name, start_number)))


def test_a_start_of_the_cluster_is_adopted_and_counts_as_a_restart() -> None:
    fact = replica("trainer-0", restarts=1)
    lost = replace(fact, state=ReplicaState.LOST)
    assert adopted(fact) == [Adoption(lost, 2, 2)]


def test_two_starts_count_twice() -> None:
    [one] = adopted(replica("trainer-0"), 3)
    assert (one.start_number, one.restarts, one.refused) == (3, 2, False)


def test_the_reported_end_of_the_lost_start_is_kept() -> None:
    fact = killed("trainer-0")
    [one] = adopted(fact)
    assert (one.lost, one.refused) == (fact, False)


def test_the_start_after_a_rehearsed_failure_costs_no_restart() -> None:
    [one] = adopted(replica("trainer-0", rehearsed=True))
    assert (one.start_number, one.restarts) == (2, 0)


@pytest.mark.invariant("A start that the cluster made beyond the restarts of a replica is refused.")
@pytest.mark.parametrize(
    ("fact", "restarts"),
    [
        (replica("trainer-0", restarts=3), 3),
        (replica("trainer-0", restarts=2, start_number=0), 3),
        (spent("trainer-0"), 3),
        (exited("trainer-0"), 0),
        (exited("trainer-0", 1), 0),
        (replace(killed("trainer-0"), out_of_memory=True), 0),
    ],
    ids=["no restart left", "two starts, one restart left", "ended without restarts", "succeeded", "failed", "memory"],
)
def test_a_start_of_a_replica_that_may_not_run_again_is_refused(fact: ReplicaFact, restarts: int) -> None:
    [one] = adopted(fact)
    assert (one.refused, one.start_number, one.restarts) == (True, 3, restarts)


def test_a_start_of_processes_that_meet_once_is_refused() -> None:
    [one] = adopted(replica("trainer-0"), together=True)
    assert one.refused


@pytest.mark.parametrize("state", [JobState.REGISTERING, JobState.STOPPING, JobState.SUCCEEDED])
def test_nothing_is_adopted_in_a_job_that_does_not_run(state: JobState) -> None:
    assert adoptions(job(state), [replica("trainer-0")], view(seen(start_number=2))) == []


def test_nothing_is_adopted_without_a_view_or_for_a_dismissed_trainer() -> None:
    assert adoptions(job(), [replica("trainer-0")], None) == []
    assert adopted(replica("trainer-0", dismissed=True)) == []


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([ReplicaState.REGISTERED, ReplicaState.LOST, ReplicaState.EXITED]),
)
@settings(max_examples=examples(200), deadline=None)
def test_after_an_adoption_nothing_is_left_to_adopt(
    number: int, shown: int, restarts: int, rehearsed: bool, state: ReplicaState
) -> None:
    fact = replica("trainer-0", start_number=number, restarts=restarts, rehearsed=rehearsed, state=state)
    for one in adopted(fact, shown):
        after = replace(fact, start_number=one.start_number, restarts=one.restarts)
        assert adopted(after, shown) == []
        assert after.restarts <= RESTARTS["trainer"]


# --- Grants ----------------------------------------------------------------------------------------------------------
def granted(fact: ReplicaFact, now: int | None = 0, spare: int = 2, **fields: object) -> dict[str, int]:
    return dict(limits(job(**fields), [fact], view(seen(fact.name, fact.start_number, now)), spare))


@pytest.mark.parametrize(
    ("restarts", "spare", "limit"), [(0, 2, 6), (1, 2, 6), (2, 2, 5), (0, 9, 7)], ids=["two", "two left", "one", "all"]
)
def test_starts_are_granted_within_the_restarts_that_are_left(restarts: int, spare: int, limit: int) -> None:
    fact = replica("pserver-0", start_number=4, restarts=restarts)
    assert granted(fact, spare=spare) == {"pserver-0": limit}
    assert granted(fact, limit, spare) == {}


@pytest.mark.parametrize(
    "fact",
    [
        replica("trainer-0", restarts=3),
        exited("trainer-0"),
        spent("trainer-0"),
        replica("trainer-0", dismissed=True),
    ],
    ids=["no restart left", "succeeded", "lost", "dismissed"],
)
def test_a_grant_is_taken_back_from_a_replica_that_is_not_to_run_again(fact: ReplicaFact) -> None:
    assert granted(fact) == {}
    assert granted(fact, 3) == {"trainer-0": 0}


def test_no_start_is_granted_where_the_setting_is_0_or_the_processes_meet_once() -> None:
    assert granted(replica("trainer-0"), spare=0) == {}
    assert granted(replica("trainer-0"), together=True) == {}


def test_a_replica_about_to_be_restarted_keeps_its_grant() -> None:
    assert granted(killed("trainer-0"), 3) == {}


def test_a_replica_that_the_backend_never_replaces_gets_no_grant() -> None:
    assert granted(replica("trainer-0"), None) == {}


def test_a_start_is_adopted_before_others_are_granted() -> None:
    facts = [replica("trainer-0")]
    assert limits(job(), facts, view(seen(start_number=2)), 2) == {}
