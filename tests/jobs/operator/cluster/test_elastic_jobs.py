"""Elastic jobs on a real cluster: ``make test-kube``.

They share its node, and release capacity for a new job and for a service of higher priority; trainings go on meanwhile.
The portal is of the kind that one command starts: with all rights on the cluster and with a controller of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from jobs.elastic.controller.cluster_watch import ClusterState, ClusterWatch
from jobs.messages import elastic as messages
from jobs.operator.client.resources import ALL_PODS
from jobs.operator.model import names
from regatta import Client
from regatta.errors import PortalError
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator import leftovers
from tests.jobs.operator.environment import etcd_on, native, portal_with_all_rights_on
from tests.jobs.operator.kube_cluster import Cluster, own_prefix
from tests.messages import mentions
from tests.waiting import until

# Alone: they take the whole capacity.
pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(1200)]

# Cores of a job besides its trainers: three jobs leave capacity for six trainers.
CORES = 2.0
MASTER, PSERVER, TRAINER = 0.15, 0.1, 0.2
SECONDS = 240.0
# A pause between two steps, until the test creates the file. With it four trainers would need longer than a test may
# take for all steps; without it they finish in seconds.
PAUSE = """
    if not os.path.exists("enough"):
        time.sleep(3)
"""


class Service:
    """A Deployment with a higher priority than jobs, whose replicas request as much as a trainer.

    The scheduler preempts no pods for it: the platform must release the capacity.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self._priority = cluster, own_prefix("service") + "first"
        self._path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"

    def create(self) -> None:
        kind = {"metadata": {"name": self._priority}, "value": 1000, "preemptionPolicy": "Never"}
        self.cluster.api.call("POST", leftovers.PRIORITIES, kind)
        self.cluster.api.call("POST", self._path, self._body())

    def _body(self) -> dict[str, Any]:
        labels, amounts = {"app": "service"}, {"cpu": f"{TRAINER * 1000:g}m", "memory": "32Mi"}
        container = {
            "name": "main",
            "image": self.cluster.image,
            "command": ["sleep", "3600"],
            "resources": {"requests": amounts, "limits": amounts},
        }
        pod = {
            "containers": [container],
            "priorityClassName": self._priority,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        }
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        return {"metadata": {"name": "service", "labels": labels}, "spec": spec}

    def scale(self, replicas: int) -> None:
        self.cluster.api.call("PATCH", f"{self._path}/service", {"spec": {"replicas": replicas}})

    @property
    def ready(self) -> int:
        status = self.cluster.api.call("GET", f"{self._path}/service")["status"]
        return int(status.get("readyReplicas", 0))

    def waited(self) -> set[str]:
        """Return the pods that were unschedulable at first."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/events"
        events = self.cluster.api.call("GET", path)["items"]
        return {each["involvedObject"]["name"] for each in events if each.get("reason") == "FailedScheduling"}

    def pods(self) -> set[str]:
        items = self.cluster.api.call("GET", ALL_PODS.path(self.cluster.namespace))["items"]
        return {each["metadata"]["name"] for each in items}

    def remove(self) -> None:
        self.cluster.api.call("DELETE", f"{leftovers.PRIORITIES}/{self._priority}")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def running_portal(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    directory = tmp_path_factory.mktemp("running_portal") / "data"
    with (
        etcd_on(cluster, tmp_path_factory.mktemp("etcd")) as store,
        portal_with_all_rights_on(
            cluster,
            directory,
            own_prefix("elastic"),
            REGATTA_ELASTIC_COOL_DOWN_SECONDS="2",
            **native(cluster, store),
        ) as running_portal,
    ):
        yield running_portal


@pytest.fixture
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    with running_portal.client() as client:
        yield client


@pytest.fixture
def http(running_portal: RunningPortal) -> Iterator[httpx.Client]:
    with running_portal.http() as client:
        yield client


@pytest.fixture
def shop(cluster: Cluster, running_portal: RunningPortal) -> Iterator[Cluster]:
    """Return a namespace outside the portal, whose pods take the nodes' capacity beyond ``CORES``."""
    found = Cluster()
    with found.with_namespace():
        until(
            "the nodes have free capacity", lambda: has_free_cores(found), SECONDS, every=0.5, story=lambda: pods(found)
        )
        leave(found, CORES)
        yield found


@pytest.fixture
def service(shop: Cluster) -> Iterator[Service]:
    found = Service(shop)
    found.create()
    yield found
    found.remove()


def survey(cluster: Cluster) -> ClusterState:
    sighting = ClusterWatch(cluster.api).look()
    assert sighting is not None, "the API server lists the nodes"
    return sighting


def free_by_node(cluster: Cluster) -> dict[str, float]:
    """Return the cores that no pod requests, by node."""
    sighting = survey(cluster)
    free = {node.name: node.allocatable.cpu / 1000 for node in sighting.nodes if not node.taints}
    for pod in sighting.pods:
        if pod.node in free and not pod.over:
            free[pod.node] -= pod.needs.cpu / 1000
    return free


def free_cores(cluster: Cluster) -> float:
    """Return the free cores of the node that has most."""
    return round(max(free_by_node(cluster).values(), default=0.0), 3)


def has_free_cores(cluster: Cluster) -> bool:
    """Return whether enough cores are free and none is about to become so: ``leave`` divides what is free now."""
    items = cluster.api.call("GET", ALL_PODS.path())["items"]
    return not any(names.is_leaving(item) for item in items) and free_cores(cluster) >= CORES


def leave(cluster: Cluster, cores: float) -> None:
    """Leave this many free cores on one node, none on the others."""
    nodes = sorted(free_by_node(cluster).items(), key=lambda each: -each[1])
    for place, (node, free) in enumerate(nodes):
        rest = free if place else free - cores
        if rest > 0.001:
            resource_requests = {"requests": {"cpu": f"{rest * 1000:.0f}m", "memory": "16Mi"}}
            main = {
                "name": "main",
                "image": cluster.image,
                "command": ["sleep", "3600"],
                "resources": resource_requests,
            }
            body = {"metadata": {"name": f"rest-{place}"}, "spec": {"nodeName": node, "containers": [main]}}
            cluster.api.call("POST", ALL_PODS.path(cluster.namespace), body)


def pods(cluster: Cluster) -> str:
    """Return the pods of all namespaces, for the failure message."""
    return cluster.kubectl("get", "pods", "--all-namespaces", "-o", "wide", everywhere=True)


class Fleet:
    """The jobs of a test and their state."""

    def __init__(self, portal: Client, http: httpx.Client, cluster: Cluster) -> None:
        self._portal, self._http, self._cluster = portal, http, cluster
        self._released: set[str] = set()
        self._refusals: dict[str, str] = {}
        self.jobs: list[str] = []

    def submit(self, name: str, passes: int = 10) -> str:
        self.jobs.append(self._portal.jobs.submit(elastic(self._portal, name, passes), namespace="admin").id)
        return self.jobs[-1]

    def overview(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/api/v1/jobs/{job}").json()
        return found

    def desired(self, *jobs: str) -> int:
        """Return the desired number of trainers."""
        return sum(int(self.overview(job)["trainers"] or 1) for job in jobs)

    def at_work(self, *jobs: str) -> int:
        replicas = [one for job in jobs for one in self.overview(job)["replicas"]]
        return sum(one["role"] == "trainer" and one["state"] == "registered" for one in replicas)

    def await_trainers(self, what: str, count: int, *jobs: str) -> None:
        """Wait until this many trainers are desired in total, and this many are running."""

        def settled() -> bool:
            return (self.desired(*jobs), self.at_work(*jobs)) == (count, count)

        until(f"{what}: {count} trainers", settled, SECONDS, every=0.2, story=self.diagnosis)
        before = {job: self.steps(job) for job in jobs}

        def goes_on() -> bool:
            return all(self.steps(job) > before[job] for job in jobs)

        until(f"{what}, and all of them go on", goes_on, SECONDS, every=0.2, story=self.diagnosis)

    def steps(self, job: str) -> int:
        """Return the number of costs that its training has reported so far."""
        found = self._portal.jobs.metrics.series(job, "cost")
        return sum(found["cost"].count) if "cost" in found else 0

    def finish(self, *jobs: str) -> None:
        """Let all trainers make their remaining steps without a pause."""

        def are_over() -> bool:
            left = [job for job in jobs if self.overview(job)["state"] == "RUNNING"]
            for job in left:
                self._release(job)
            return not left

        until("they have ended", are_over, SECONDS, every=0.5, story=self.diagnosis)

    def _release(self, job: str) -> None:
        """Let trainers of running pods go on. One that is starting or ending cannot, and is tried again."""
        query = {"labelSelector": f"regatta/job={job}"}
        for pod in self._cluster.api.call("GET", ALL_PODS.path(self._cluster.namespace), query=query)["items"]:
            name, uid, phase = pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"].get("phase")
            if "-worker-" in name and phase == "Running" and uid not in self._released:
                try:
                    self._cluster.kubectl("exec", name, "--", "touch", "/regatta/work/enough")
                    self._released.add(uid)
                except AssertionError as refusal:
                    self._refusals[name] = str(refusal)

    def accuracy(self, job: str) -> float:
        """Return the accuracy on digits that were not in the training data."""
        text = "\n".join(line.text for line in self._portal.jobs.logs.read(job))
        return float(re.findall(r"test accuracy: ([01]\.\d+)", text)[-1])

    def resized(self, *jobs: str) -> list[str]:
        """Return the messages about changes of the number of trainers."""
        return [event["text"] for job in jobs for event in self._portal.jobs.events(job) if event["kind"] == "scaled"]

    def diagnosis(self) -> str:
        """Return the state of jobs and pods, for the message of a failed wait."""
        lines = [pods(self._cluster), *(f"{name}: {refusal}" for name, refusal in self._refusals.items())]
        for job in self.jobs:
            now = self.overview(job)
            replicas = {one["name"]: one["state"] for one in now["replicas"]}
            lines.append(f"{now['name']}: {now['state']} {now['why']!r} {now['sizing']!r} {now['trainers']} {replicas}")
            lines += [f"    {event['time']} {event['text']}" for event in self._portal.jobs.events(job)[-12:]]
        return "\n".join(lines)


@pytest.fixture
def fleet(portal: Client, http: httpx.Client, cluster: Cluster) -> Iterator[Fleet]:
    """Yield the fleet; cancel its remaining jobs at the end."""
    fleet = Fleet(portal, http, cluster)
    yield fleet
    for job in fleet.jobs:
        with suppress(PortalError):  # it has ended by itself
            portal.jobs.cancel(job)


def elastic(portal: Client, name: str, passes: int) -> dict[str, Any]:
    """Return the example that trains on digits, in small steps and as an elastic job."""
    spec = code.shortened(portal.examples.get("digits"), passes=passes)
    script = spec["files"]["train.py"].replace("import numpy", "import os, time\nimport numpy", 1)
    script = script.replace("    job.report(cost=cost)\n", f"    job.report(cost=cost)\n{PAUSE}")
    assert script.count("enough") == 1
    trainer = {"replicas": 1, "min": 1, "max": 4, "cpu": TRAINER, "memory": "256Mi"}
    roles = {"trainer": trainer, "pserver": {"cpu": PSERVER, "memory": "256Mi"}, "master": {"cpu": MASTER}}
    return {**spec, "name": name, "elastic": True, "files": {"train.py": script}, "roles": roles}


@pytest.mark.invariant(
    "Elastic jobs on a cluster share a node with a new job and a service, and end with the right model."
)
def test_jobs_share_the_node_with_a_newcomer_and_a_service_and_end_with_the_right_model(
    fleet: Fleet, service: Service, portal: Client
) -> None:
    thirds = [fleet.submit(f"third-{number}") for number in range(3)]
    fleet.await_trainers("they have all that there is", 6, *thirds)

    fourth = fleet.submit("fourth", passes=6)
    fleet.await_trainers("the fourth has its least", 1, fourth)
    fleet.await_trainers("the others have released capacity for it", 4, *thirds)
    fleet.finish(fourth)
    assert portal.jobs.wait(fourth, SECONDS).state == "SUCCEEDED"
    fleet.await_trainers("the others have its place", 6, *thirds)

    service.scale(2)
    until("the service has what it asked for", lambda: service.ready == 2, SECONDS, every=0.2, story=fleet.diagnosis)
    # Two jobs release capacity for it, one more for its next request.
    fleet.await_trainers("jobs have released capacity", 3, *thirds)
    until(
        "that is kept free", lambda: free_cores(service.cluster) >= TRAINER, SECONDS, every=0.2, story=fleet.diagnosis
    )
    resized, there = fleet.resized(*thirds), service.pods()
    service.scale(3)
    until("the service has grown", lambda: service.ready == 3, SECONDS, every=0.2, story=fleet.diagnosis)
    assert not service.waited() - there, "the third had capacity before it requested it"
    assert fleet.resized(*thirds) == resized, "nobody had to do anything for it"
    service.scale(0)
    fleet.await_trainers("jobs have its place", 6, *thirds)

    fleet.finish(*thirds)
    ends = [portal.jobs.wait(job, SECONDS) for job in thirds]
    assert [(ended.state, ended.attempt) for ended in ends] == [("SUCCEEDED", 1)] * 3, fleet.diagnosis()
    assert min(fleet.accuracy(job) for job in (*thirds, fourth)) >= 0.9
    overview = fleet.resized(*thirds)
    for recipient in (
        messages.OTHER_STARTED_WORKLOADS(),
        messages.CLUSTER_SERVICE(),
    ):
        assert any(mentions(text, messages.SCALES_DOWN_FOR_OTHERS, beneficiary=recipient) for text in overview), (
            recipient,
            overview,
        )
