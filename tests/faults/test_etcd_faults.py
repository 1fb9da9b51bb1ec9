"""etcd fails under a running job."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from runtime import contract
from runtime.messages import training as messages
from tests.faults.cluster import SHORT_LEASE_SECONDS
from tests.faults.recording import verdict
from tests.messages import mentions
from tests.servers.etcd_server import EtcdServer

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]

SLOWLY = {"REGATTA_FAULTS_PAUSE": "0.1"}
LONG_LEASE_SECONDS = 60.0


@pytest.fixture
def own_etcd(tmp_path):
    """An etcd server of the test's own, for faults."""
    with contextlib.ExitStack() as ended:

        def start(*arguments):
            server = EtcdServer(tmp_path, *arguments)
            server.start()
            ended.callback(server.kill)
            return server

        yield start


def test_etcd_restart(job, own_etcd):
    """Killed and restarted within a lease: no process has to restart, nothing is lost."""
    etcd = own_etcd()
    cluster = job(etcd, tasks=80, passes=2, variables=SLOWLY)
    cluster.await_count("pulled", 20)
    etcd.kill()
    etcd.start()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []


def test_etcd_compact_under_watch(job, own_etcd):
    """A server's watch is cut, the members change, the history is compacted: it lists again.

    Its keepalives are cut too, for as long as a process takes to start. The lease must last longer than that also on a
    busy machine: a replica whose lease has expired is correctly started again.
    """
    etcd = own_etcd()
    cluster = job(etcd, mode="async", trainers=2, tasks=100, passes=2, lease=LONG_LEASE_SECONDS, variables=SLOWLY)
    cluster.await_count("pulled", 10)
    watch = cluster.lines["pserver-0"].edge
    watch.refuse()
    cluster.start("trainer-2")
    cluster.until(lambda: cluster.member("trainer-2"), "a third trainer is registered")
    etcd.compact()
    watch.heal()
    cluster.await_count("pulled", 5, "trainer-2")
    etcd.compact()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert len(cluster.runs["pserver-0"]) == 1


def test_etcd_lease_revoked(job, own_etcd):
    """An operator revokes the leases of a trainer and of the parameter server, whose processes run: both leave."""
    etcd = own_etcd()
    cluster = job(etcd, tasks=80, passes=2, checkpoint_seconds=0.05, variables=SLOWLY)
    cluster.await_count("recorded", 2)
    for name in ("trainer-0", "pserver-0"):
        run = cluster.run(name)
        etcd.ctl("lease", "revoke", f"{lease_of(cluster, name):x}")
        cluster.until(lambda: run.ended, f"{name} leaves")  # noqa: B023
        assert mentions(run.why, messages.MEMBERSHIP_LOST)
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_checkpoints(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []


def lease_of(cluster, name):
    role, _dash, index = name.partition("-")
    return next(e.lease for e in cluster.store.list("/regatta/").entries if e.key.endswith(f"members/{role}/{index}"))


def test_etcd_nospace(job, own_etcd):
    """etcd accepts no writes: no task can be handed out, and the job continues when there is space again."""
    etcd = own_etcd("--quota-backend-bytes", str(16 << 20))
    cluster = job(etcd, workload="queue", pservers=0, tasks=50, passes=4, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("finished", 10)
    fill(etcd)
    cluster.await_quiet("finished")
    etcd.ctl("del", "filling")
    free_space(etcd)
    events = cluster.finish()
    assert verdict.of_tasks(cluster, events) == []
    assert [len(runs) for runs in cluster.runs.values()] == [1, 1, 1]


def fill(etcd: EtcdServer) -> None:
    with contextlib.suppress(AssertionError):
        for _ in range(40):
            etcd.ctl("put", "filling", "x" * 100_000)  # one argument of a command cannot be larger
            for _ in range(6):
                etcd.ctl("put", "filling", "x" * 100_000)
    assert "NOSPACE" in etcd.ctl("alarm", "list")


def free_space(etcd: EtcdServer) -> None:
    etcd.compact()
    etcd.ctl("defrag")
    etcd.ctl("alarm", "disarm")


@pytest.mark.timed
def test_etcd_down_30s(job, own_etcd):
    """Away for three leases, like half a minute with leases of ten seconds: running processes continue afterwards."""
    etcd = own_etcd()
    cluster = job(etcd, tasks=80, passes=2, lease=SHORT_LEASE_SECONDS, variables=SLOWLY)
    cluster.await_count("pulled", 20)
    alive_until = time.monotonic()
    etcd.kill()
    killed = time.monotonic()
    cluster.await_quiet("pulled", seconds=3 * SHORT_LEASE_SECONDS)
    # A task is one step of a tenth of a second, of which a trainer has about two prefetched. The number of them between
    # the two readings of the clock is unknown.
    pulled = [event for event in cluster.history() if event.kind == "pulled"]
    trainers = [f"trainer-{index}.1" for index in range(2)]
    at_most = [sum(event.source == source and event.at > alive_until for event in pulled) for source in trainers]
    at_least = [sum(event.source == source and event.at > killed for event in pulled) for source in trainers]
    assert min(at_most) >= 2, "each ends its task and does those that it was given ahead"
    assert max(at_least) <= 4, "and then it stops"
    etcd.start()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []
    assert [len(runs) for runs in cluster.runs.values()] == [1, 1, 1, 1], "nobody had to start again"
    assert any(mentions(text, messages.STORE_RESPONDS_AGAIN) for text in cluster.portal.events()), "the page shows it"


@pytest.mark.parametrize(("outage", "strict"), [("0", True), ("60", False)])
def test_partition_master_etcd(job, etcd, outage, strict):
    """The serving master cannot reach etcd, and the standby takes over.

    In strict mode the first master stops before that. Otherwise it continues, commits nothing, and leaves when it can
    reach etcd again.
    """
    cluster = job(
        etcd, workload="queue", pservers=0, masters=2, trainers=2, tasks=50, passes=6, lease=SHORT_LEASE_SECONDS,
        variables={"REGATTA_FAULTS_PAUSE": "0.1", contract.OUTAGE: outage},
    )  # fmt: skip
    cluster.until(lambda: len(cluster.members()) == 4, "all are there")
    first = min(("master-0", "master-1"), key=lambda name: cluster.member(name).incarnation)
    cluster.await_count("finished", 10)
    run, before = cluster.run(first), cluster.member(first)
    cluster.lines[first].edge.cut()
    if strict:
        cluster.until(lambda: run.ended or not alive(run.pid), "it stops by itself")
    cluster.until(lambda: cluster.member(first) != before, "its lease runs out")
    cluster.await_count("finished", cluster.count("finished") + 10)
    cluster.lines[first].edge.heal()
    cluster.until(lambda: run.ended, "it has left")
    events = cluster.finish()
    assert verdict.of_tasks(cluster, events) == []
    assert run.code == contract.EXIT_RESTART


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
