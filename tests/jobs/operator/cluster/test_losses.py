"""The loss of a node and of a whole namespace while jobs run: ``make test-kube``.

The tests of a lost node need KUBE_NODE, the name of a node for these tests alone. KUBE_NODE_UP (a command) brings the
node up, and KUBE_NODE_DOWN ends it at once, without notice.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.operator.client.resources import NODES
from regatta import Client
from regatta.job import Job
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator.environment import controller_on, etcd_on, native, portal_on
from tests.jobs.operator.kube_cluster import Cluster, own_prefix
from tests.jobs.operator.trial import SMALL, Trial

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

SECONDS = 240.0
# Keeps all other pods away from the node that is taken down.
TAINT = "regatta-test"
NODE = os.environ.get("KUBE_NODE", "")
# The job's pods may run there, and prefer that node.
THERE = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
SOONER = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": THERE}]}
PLACEMENT = {"tolerations": [{"key": TAINT, "operator": "Exists"}], "affinity": {"nodeAffinity": SOONER}}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def running_portal(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    placement = {"REGATTA_KUBERNETES_PLACEMENT": json.dumps(PLACEMENT)}
    directory, prefix = tmp_path_factory.mktemp("running_portal") / "data", own_prefix("loss")
    with (
        etcd_on(cluster, tmp_path_factory.mktemp("etcd")) as store,
        controller_on(cluster, tmp_path_factory.mktemp("controller"), prefix),
        portal_on(cluster, directory, prefix, **native(cluster, store), **placement) as running_portal,
    ):
        yield running_portal


@pytest.fixture
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    with running_portal.client() as client:
        yield client


@pytest.fixture
def trial(portal: Client, cluster: Cluster) -> Iterator[Trial]:
    with Trial(portal, cluster).open() as trial:
        yield trial


def run(trial: Trial, spec: dict[str, Any]) -> Job:
    roles = {"trainer": {"replicas": 1, "max": 2, **SMALL}, "pserver": {"replicas": 1, **SMALL}}
    return trial.submit({**spec, "roles": {**roles, "master": {"cpu": SMALL["cpu"]}}, "elastic": False})


# --- A namespace -----------------------------------------------------------------------------------------------------
@pytest.mark.invariant("Jobs whose namespace was deleted on the cluster run again in a new one.")
def test_jobs_of_a_deleted_namespace_restart_in_the_recreated_one(
    portal: Client, trial: Trial, cluster: Cluster
) -> None:
    jobs = [run(trial, code.slow(f"deleted-{number}", passes=500, pause=0.3)) for number in range(2)]
    for job in jobs:
        trial.until_trained(job, "trainer-0", more=1)
    before = cluster.api.call("GET", f"/api/v1/namespaces/{cluster.namespace}")["metadata"]["uid"]
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false", everywhere=True)
    for job in jobs:
        trial.until("it is tried again", lambda job=job: portal.jobs.get(job.id).attempt == 2, SECONDS)
        lines = [event["text"] for event in portal.jobs.events(job.id)]
        assert any("gone" in text for text in lines), lines
        trial.until("it runs again", lambda job=job: portal.jobs.get(job.id).state == "RUNNING", SECONDS)
    assert cluster.api.call("GET", f"/api/v1/namespaces/{cluster.namespace}")["metadata"]["uid"] != before
    for job in jobs:
        portal.jobs.cancel(job.id)
        assert portal.jobs.wait(job.id, SECONDS).state == "CANCELLED"


# --- A node ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def another_node(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Bring up a node for this test alone and yield its name."""
    if not NODE:
        pytest.skip("no node may die: set KUBE_NODE, KUBE_NODE_UP and KUBE_NODE_DOWN")

    def bring() -> str:
        with subprocess.Popen(shlex.split(os.environ["KUBE_NODE_UP"]), stdout=subprocess.DEVNULL) as rising:
            # Before it is ready: otherwise pending pods of others would be scheduled on it at once.
            cluster.until(f"{NODE} is there", lambda: cluster.is_there(NODES.path(name=NODE)))
            cluster.kubectl("taint", "node", NODE, f"{TAINT}=:NoSchedule", "--overwrite", everywhere=True)
        assert rising.returncode == 0
        cluster.until(f"{NODE} is ready", lambda: is_ready(cluster, NODE))
        return NODE

    yield bring
    with suppress(subprocess.CalledProcessError):  # the test has ended it
        end_node()
    cluster.kubectl("delete", "node", NODE, "--wait=false", "--ignore-not-found", everywhere=True)


def end_node() -> None:
    subprocess.run(shlex.split(os.environ["KUBE_NODE_DOWN"]), check=True, capture_output=True)


def is_ready(cluster: Cluster, node: str) -> bool:
    conditions = cluster.api.call("GET", NODES.path(name=node))["status"].get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def places(cluster: Cluster, job: Job) -> dict[str, str]:
    """Return the node of each trainer's pod, by its index."""
    found = cluster.api.call(
        "GET", f"/api/v1/namespaces/{cluster.namespace}/pods", query={"labelSelector": f"regatta/job={job.id}"}
    )["items"]
    named = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in found}
    return {name.rpartition("-worker-")[2]: where for name, where in named.items() if "-worker-" in name}


@pytest.mark.invariant("A node that fails ends no job and loses no log line.")
def test_the_loss_of_a_node_costs_a_job_nothing(
    portal: Client, trial: Trial, cluster: Cluster, another_node: Callable[[], str], tmp_path: Path
) -> None:
    job = run(trial, code.slow("node-dies", passes=12, pause=0.4))
    trial.until_trained(job, "trainer-0")
    node = another_node()
    portal.jobs.scale(job.id, trainer=2)
    trial.until_trained(job, "trainer-1")
    assert places(cluster, job)["1"] == node
    end_node()
    trial.until_back(job, "trainer-1", SECONDS)
    assert places(cluster, job)["1"] != node
    for trainer in ("trainer-0", "trainer-1"):
        trial.release(job, trainer)
    ended = portal.jobs.wait(job.id, SECONDS)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1), ended
    lines = trial.steps(job, "trainer-0")
    assert lines == list(range(1, len(lines) + 1)), "every line is there, once, in order"
    portal.jobs.artifacts.download(job.id, "model.npz", tmp_path / "model.npz")
    trained = np.load(tmp_path / "model.npz")["w"]
    assert np.isfinite(trained).all()
    assert portal.jobs.metrics.series(job.id, "cost")["cost"].last[-1] < 0.5, "it has learnt"
