"""What a cluster loses under jobs that run: a node, and a whole namespace; ``make test-kube``.

A node dies where KUBE_NODE names one that KUBE_NODE_UP (a command) brings up, for these tests alone, and KUBE_NODE_DOWN
ends at once, without a word to anybody.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regatta import Client
from regatta.errors import PortalError
from regatta.job import Job
from runtime.coordination.etcd_address import EtcdAddress
from tests.end_to_end import code
from tests.end_to_end.house import House
from tests.etcd_server import EtcdServer
from tests.jobs.kubernetes.cluster import Cluster, wait_until
from tests.jobs.kubernetes.surroundings import house_on, own_address, runtime_image

pytestmark = [pytest.mark.kube, pytest.mark.timeout(480)]

SECONDS = 240.0
# Keeps everybody else's pods away from the node that dies.
TAINT = "regatta-test"
PLACEMENT = {"tolerations": [{"key": TAINT, "operator": "Exists"}]}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def house(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    store = EtcdServer(tmp_path_factory.mktemp("etcd"), host=own_address(cluster.kubeconfig))
    store.start()
    store.switch_authentication_on()
    settings = {
        "REGATTA_KUBERNETES_IMAGE": runtime_image(cluster.registry),
        "REGATTA_COORDINATION": EtcdAddress((store.server,), "/site", "root", store.password).url,
        "REGATTA_KUBERNETES_PLACEMENT": json.dumps(PLACEMENT),
    }
    directory = tmp_path_factory.mktemp("house") / "data"
    try:
        with house_on(cluster, directory, f"loss-{uuid.uuid4().hex[:6]}-", **settings) as house:
            yield house
    finally:
        store.kill()


@pytest.fixture
def portal(house: House) -> Iterator[Client]:
    with house.client() as client:
        yield client


@pytest.fixture
def run(portal: Client) -> Iterator[Callable[..., Job]]:
    """Submits; whatever is left of it is cancelled."""
    begun: list[Job] = []

    def submit(spec: dict[str, Any], trainers: int) -> Job:
        small = {"cpu": 0.2, "memory": "256Mi"}
        roles = {"trainer": {"replicas": trainers, "max": 2, **small}, "pserver": {"replicas": 1, **small}}
        begun.append(portal.submit({**spec, "roles": roles, "elastic": False}, namespace="admin"))
        return begun[-1]

    yield submit
    for job in begun:
        with suppress(PortalError):  # it has ended by itself
            portal.cancel(job.id)


def steps(portal: Client, job: Job, replica: str) -> list[int]:
    lines = (line for line in portal.logs(job.id, replica=replica) if line.text.startswith("step "))
    return [int(line.text.split()[1]) for line in lines]


# --- A namespace -----------------------------------------------------------------------------------------------------
def test_jobs_whose_namespace_is_deleted_begin_again_in_the_one_that_is_made_anew(
    portal: Client, run: Callable[..., Job], cluster: Cluster
) -> None:
    jobs = [run(code.slow(f"deleted-{number}", passes=500, pause=0.3), trainers=1) for number in range(2)]
    for job in jobs:
        wait_until(lambda job=job: steps(portal, job, "trainer-0"), "it trains")
    before = cluster.api.call("GET", f"/api/v1/namespaces/{cluster.namespace}")["metadata"]["uid"]
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false", everywhere=True)
    for job in jobs:
        wait_until(lambda job=job: portal.job(job.id).attempt == 2, "it is tried again", SECONDS)
        told = [event["text"] for event in portal.events(job.id)]
        assert any("gone" in text for text in told), told
        wait_until(lambda job=job: portal.job(job.id).state == "RUNNING", "it runs again", SECONDS)
    assert cluster.api.call("GET", f"/api/v1/namespaces/{cluster.namespace}")["metadata"]["uid"] != before
    for job in jobs:
        portal.cancel(job.id)
        assert portal.wait(job.id, SECONDS).state == "CANCELLED"


# --- A node ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def another_node(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Brings a node up, for us alone, and tells its name."""
    name = os.environ.get("KUBE_NODE", "")
    if not name:
        pytest.skip("no node may die: set KUBE_NODE, KUBE_NODE_UP and KUBE_NODE_DOWN")

    def bring() -> str:
        command("KUBE_NODE_UP")
        # As soon as it is there: others' pods would be put on it.
        cluster.kubectl("taint", "node", name, f"{TAINT}=:NoSchedule", "--overwrite", everywhere=True)
        return name

    yield bring
    with suppress(subprocess.CalledProcessError):  # the test has ended it
        command("KUBE_NODE_DOWN")
    cluster.kubectl("delete", "node", name, "--wait=false", "--ignore-not-found", everywhere=True)


def command(variable: str) -> None:
    subprocess.run(shlex.split(os.environ[variable]), check=True, capture_output=True)


def places(cluster: Cluster, job: Job) -> dict[str, str]:
    """On which node each trainer's pod is, by its index."""
    found = cluster.api.call(
        "GET", f"/api/v1/namespaces/{cluster.namespace}/pods", query={"labelSelector": f"regatta/job={job.id}"}
    )["items"]
    named = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in found}
    return {name.rpartition("-worker-")[2]: where for name, where in named.items() if "-worker-" in name}


def is_back(portal: Client, job: Job, replica: str) -> bool:
    return any(event["text"].startswith(f"{replica} is back after") for event in portal.events(job.id))


def test_a_node_that_dies_costs_a_job_nothing(
    portal: Client, run: Callable[..., Job], cluster: Cluster, another_node: Callable[[], str], tmp_path: Path
) -> None:
    job = run(code.slow("node-dies", passes=12, pause=0.4), trainers=1)
    wait_until(lambda: max(steps(portal, job, "trainer-0"), default=0) > 2, "it trains")
    node = another_node()
    # Who comes now is put where there is most room, which is where nothing is yet.
    portal.scale(job.id, trainer=2)
    wait_until(lambda: max(steps(portal, job, "trainer-1"), default=0) > 2, "the newcomer trains")
    assert places(cluster, job)["1"] == node
    command("KUBE_NODE_DOWN")
    wait_until(lambda: is_back(portal, job, "trainer-1"), lambda: f"it is back: {portal.job(job.id).why}", SECONDS)
    assert places(cluster, job)["1"] != node
    ended = portal.wait(job.id, SECONDS)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1), ended
    told = steps(portal, job, "trainer-0")
    assert told == list(range(1, len(told) + 1)), "every line is there, once, in order"
    portal.download(job.id, "model.npz", tmp_path / "model.npz")
    trained = np.load(tmp_path / "model.npz")["w"]
    assert np.isfinite(trained).all()
    assert portal.metrics(job.id, "cost")["cost"].last[-1] < 0.5, "it has learnt"
