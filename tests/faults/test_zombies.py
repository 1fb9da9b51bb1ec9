"""Machines that were stopped, and continue after they were replaced."""

from __future__ import annotations

import pytest

from runtime import contract
from tests.faults import invariants
from tests.faults.cluster import SHORT_LEASE_SECONDS, Cluster, Run
from tests.faults.recording import verdict

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]

SLOWLY = {"REGATTA_FAULTS_PAUSE": "0.1"}


def await_expiry(cluster: Cluster, name: str) -> None:
    """Wait until the present registration of a replica is gone."""
    before = cluster.member(name)
    cluster.until(lambda: cluster.member(name) != before, f"the lease of {name} runs out")


def await_end(cluster: Cluster, run: Run) -> None:
    cluster.until(lambda: run.ended, f"{run.source} finds that it has been replaced")
    assert run.code == contract.EXIT_RESTART, run.why


@pytest.mark.invariant("A replaced pserver applies no step and records no checkpoint after it resumes.")
def test_zombie_pserver_stop_cont(job, etcd):
    cluster = job(
        etcd,
        tasks=80,
        passes=2,
        checkpoint_seconds=0.05,
        lease=SHORT_LEASE_SECONDS,
        variables={"REGATTA_FAULTS_PAUSE": "0.1"},
    )
    cluster.await_count("recorded", 2)
    zombie = cluster.freeze("pserver-0")
    await_expiry(cluster, "pserver-0")
    cluster.start("pserver-0")
    cluster.until(lambda: cluster.member("pserver-0"), "another has its place")
    cluster.thaw(zombie)
    await_end(cluster, zombie)
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_checkpoints(cluster, events) == []


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_zombie_trainer(job, etcd, mode):
    cluster = job(etcd, mode=mode, tasks=80, passes=4, lease=SHORT_LEASE_SECONDS, variables=SLOWLY)
    cluster.await_count("pulled", 5, "trainer-0")
    zombie = cluster.freeze("trainer-0")
    await_expiry(cluster, "trainer-0")
    cluster.await_count("pulled", cluster.count("pulled", "trainer-1") + 5, "trainer-1")
    cluster.thaw(zombie)
    await_end(cluster, zombie)
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []
    bound = 2 * cluster.plan.lease + 2.0
    others = [event for event in events if event.source.startswith("trainer-1")]
    assert invariants.never_stands_still(others, ["pulled"], bound) == []


@pytest.mark.invariant("A replaced master dispatches and commits nothing after it resumes.")
def test_two_masters(job, etcd):
    """The first is stopped, the second takes over, the first continues and may not send anything any more."""
    cluster = job(
        etcd, workload="queue", pservers=0, masters=2, trainers=3, tasks=50, passes=8, lease=SHORT_LEASE_SECONDS,
        variables={"REGATTA_FAULTS_PAUSE": "0.1"},
    )  # fmt: skip
    cluster.until(lambda: len(cluster.members()) == 5, "all are there")
    first = min(("master-0", "master-1"), key=lambda name: cluster.member(name).incarnation)
    cluster.await_count("finished", 10)
    zombie = cluster.freeze(first)
    await_expiry(cluster, first)
    cluster.await_count("finished", cluster.count("finished") + 10)
    cluster.thaw(zombie)
    await_end(cluster, zombie)
    events = cluster.finish()
    assert verdict.of_tasks(cluster, events) == []
    assert invariants.never_stands_still(events, ["finished"], 2 * cluster.plan.lease + 2.0) == []


def test_two_pservers_same_index(job, etcd):
    cluster = job(etcd, tasks=60, checkpoint_seconds=0.05, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("recorded", 2)
    first = cluster.run("pserver-0")
    second = cluster.start("pserver-0", **{contract.START_NUMBER: "1"})
    cluster.runs["pserver-0"].remove(second)
    await_end(cluster, second)
    assert "another process is registered as pserver-0" in second.why
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_checkpoints(cluster, events) == []
    assert cluster.run("pserver-0") is first
