"""Faults of the network between the processes of a job; the processes are healthy."""

from __future__ import annotations

import pytest

from bench.runtime.proxy import DOWN, UP
from runtime.messages import training as messages
from tests.faults.recording import verdict
from tests.messages import mentions

pytestmark = [pytest.mark.faults, pytest.mark.processes]


@pytest.mark.parametrize(("mode", "others_go_on"), [("sync", False), ("async", True)])
def test_partition_trainer(job, mode, others_go_on):
    cluster = job(mode=mode, tasks=60, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 5, "trainer-0")
    edges = [cluster.wires["trainer-0"][server] for server in ("pserver-0", "master-0")]
    for edge in edges:
        edge.cut()
    cluster.await_quiet("pulled", "trainer-0")
    before = cluster.count("pulled", "trainer-1")
    if others_go_on:
        cluster.await_count("pulled", before + 5, "trainer-1")
    else:
        cluster.await_quiet("pulled", "trainer-1")
    for edge in edges:
        edge.heal()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert [len(runs) for runs in cluster.runs.values()] == [1, 1, 1, 1], "nobody had to start again"


def test_partition_pserver(job):
    cluster = job(pservers=2, tasks=60, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 10)
    edges = [cluster.wires[trainer]["pserver-1"] for trainer in ("trainer-0", "trainer-1")]
    for edge in edges:
        edge.cut()
    cluster.await_quiet("pulled")
    for edge in edges:
        edge.heal()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert len(cluster.runs["trainer-0"]) == len(cluster.runs["pserver-1"]) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_asymmetric_partition(job, mode):
    """Requests arrive, and the answers do not. Repeated requests count once."""
    cluster = job(mode=mode, tasks=60, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 5, "trainer-0")
    edge = cluster.wires["trainer-0"]["pserver-0"]
    edge.cut(DOWN)
    cluster.await_quiet("pulled", "trainer-0")
    edge.reset()
    edge.heal()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert any(event.kind == "not applied" and event["outcome"] == "duplicate" for event in events)


def test_doubled_connections(job):
    """Every byte arrives twice, on two connections: the copy of a proof is invalid on the other one."""
    cluster = job(mode="async", tasks=40, launch=False, variables={"REGATTA_FAULTS_FAR": "yes"})
    for name in ("master-0", "pserver-0", "trainer-0", "trainer-1"):
        cluster.start(name)
        if name.startswith("trainer"):
            cluster.wires[name]["pserver-0"].weather.doubling = True
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert any(mentions(text, messages.CONNECTION_REFUSED) for text in cluster.portal.events())


@pytest.mark.parametrize("mode", ["m_of_n(2)", "ssp(2)"])
def test_slow_trainer(job, mode):
    """One of three trainers is slow. With a quorum the others do not wait for it; with a bound they do not run away."""
    cluster = job(mode=mode, trainers=3, tasks=60)
    cluster.await_count("joined", 3)
    cluster.wires["trainer-0"]["pserver-0"].weather.delay = 0.05
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert [len(runs) for runs in cluster.runs.values()] == [1, 1, 1, 1, 1], "nobody's lease was lost"


@pytest.mark.invariant("A damaged frame is detected and sent again, and its step counts once.")
@pytest.mark.parametrize("direction", [UP, DOWN])
def test_corrupt_frame(job, direction):
    """A flipped bit is detected anywhere; the message is sent again."""
    cluster = job(tasks=40, variables={"REGATTA_FAULTS_FAR": "yes", "REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 3, "trainer-0")
    edge = cluster.wires["trainer-0"]["pserver-0"]
    for number in range(4):
        edge.flip(direction, after=37 + 641 * number)
        cluster.until(lambda: edge.flipped > number, "a bit is flipped")  # noqa: B023
        cluster.await_count("pulled", cluster.count("pulled", "trainer-0") + 2, "trainer-0")
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert len(cluster.runs["trainer-0"]) == 1
