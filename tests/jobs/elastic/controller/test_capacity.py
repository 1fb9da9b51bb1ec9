"""The controller on a cluster, with the database, a backend whose replicas are pods of an API server in memory, and a
scheduler that binds a pod to a node where it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from jobs.backends import factory as backend_factory
from jobs.backends.base import LaunchPlan, Phase
from jobs.backends.kubernetes.manifests import ROLES, job_name, pod_name
from jobs.elastic.controller import external_usage, leader_lease
from jobs.elastic.controller.capacity import CapacityReader
from jobs.elastic.controller.controller import Controller
from jobs.elastic.controller.observer import Observer
from jobs.messages import elastic as elastic_messages
from jobs.models import Elastic, Job, Neighbour
from jobs.operator.client.api import Refusal
from jobs.operator.client.resources import ALL_PODS, NODES
from jobs.operator.model.namespace_names import name_of
from quota.models import Capacity
from runtime.messages import training as training_messages
from tests.jobs.conftest import Use
from tests.jobs.elastic.controller.test_controller import World, roles, scaling_texts, trainers
from tests.jobs.fakes import ObedientBackend
from tests.jobs.operator.api_servers import FaithfulServer, RefusingServer

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
# Cores of the node. A job takes 2 cores beside its trainers of one core each.
NODE = 8
# The namespace of the cluster for jobs of ``team``.
HERE = name_of("team", "tests-")


class PodBackend(ObedientBackend):
    """A backend whose replicas are pods. They stay on their node until they end."""

    def __init__(self, server: FaithfulServer) -> None:
        super().__init__()
        self.server, self.asked = server, dict[str, dict[str, float]]()

    def launch(self, plan: LaunchPlan) -> None:
        super().launch(plan)
        self.asked[plan.ref.attempt_id] = {one.role: one.cpu for one in plan.replicas}

    def reflect(self) -> None:
        """Create and delete pods to match the replicas."""
        for attempt, views in self.views.items():
            for name, view in views.items():
                there = ("Pod", HERE, pod_name(attempt, name)) in self.server.objects
                if view.phase in (Phase.STARTING, Phase.RUNNING) and not there:
                    self._make(attempt, name)
                elif view.phase in (Phase.EXITED, Phase.LOST) and there:
                    self.server.drop("Pod", HERE, pod_name(attempt, name))

    def _make(self, attempt: str, name: str) -> None:
        role, place = name.rpartition("-")[0], job_name(attempt)
        assert role in ROLES
        owner = {"kind": "PaddleJob", "name": place, "controller": True}
        make_pod(self.server, HERE, pod_name(attempt, name), self.asked[attempt][role], owner)


def make_pod(server: FaithfulServer, namespace: str, name: str, cores: float, owner: Any, priority: int = 0) -> None:
    """Create a pod on the node if it fits there, else without a node."""
    node = "n1" if taken(server) + cores <= NODE else ""
    requests = {"cpu": str(cores), "memory": "128Mi"}
    spec = {"containers": [{"resources": {"requests": requests}}], "nodeName": node, "priority": priority}
    metadata = {"name": name, "ownerReferences": [owner]}
    FaithfulServer.call(server, "POST", ALL_PODS.path(namespace), {"metadata": metadata, "spec": spec})


def taken(server: FaithfulServer) -> float:
    bound = [pod["spec"] for pod in server.of("Pod") if pod["spec"]["nodeName"]]
    return sum(float(spec["containers"][0]["resources"]["requests"]["cpu"]) for spec in bound)


class Cluster:
    def __init__(self, server: FaithfulServer, world: World, backend: PodBackend) -> None:
        self.server, self.world, self.backend = server, world, backend
        world.controller._observer.capacity_reader = self.capacity_reader = CapacityReader(follows=False)

    def rounds(self, count: int = 1, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.world.rounds(1, seconds)
            self.backend.reflect()
            self._schedule()

    def _schedule(self) -> None:
        """Bind pods to the node where they fit, by priority."""
        waiting = [pod for pod in self.server.of("Pod") if not pod["spec"]["nodeName"]]
        for pod in sorted(waiting, key=lambda each: -each["spec"]["priority"]):
            cores = float(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            if taken(self.server) + cores <= NODE:
                where = ALL_PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
                FaithfulServer.call(self.server, "PATCH", where, {"spec": {"nodeName": "n1"}})

    def service(self, count: int, priority: int = 1000) -> None:
        owner = {"kind": "StatefulSet", "name": "web", "controller": True}
        there = {pod["metadata"]["name"] for pod in self.server.of("Pod")}
        for index in range(20):
            name = f"web-{index}"
            if index < count and name not in there:
                make_pod(self.server, "shop", name, 1, owner, priority)
            elif index >= count and name in there:
                self.server.drop("Pod", "shop", name)

    def served(self) -> int:
        return sum(
            bool(pod["spec"]["nodeName"]) for pod in self.server.of("Pod") if pod["metadata"]["name"][:3] == "web"
        )


@pytest.fixture
def server() -> FaithfulServer:
    return FaithfulServer()


@pytest.fixture
def cluster(
    server: FaithfulServer, use: Use, submit: Submit, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    settings.DEFAULT_QUOTA = {"cpu": 1000}
    settings.ELASTIC_COOL_DOWN_SECONDS = 30
    status = {
        "allocatable": {"cpu": str(NODE), "memory": "64Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    FaithfulServer.call(server, "POST", NODES.path(), {"metadata": {"name": "n1"}, "spec": {}, "status": status})
    backend = use(PodBackend(server))
    monkeypatch.setattr(backend_factory, "BACKENDS", {"kubernetes": lambda: backend})
    monkeypatch.setattr(backend_factory, "api_server", lambda: server)
    settings.CLUSTER_BACKEND, settings.KUBERNETES_NAMESPACES, settings.KUBERNETES_PREFIX = "kubernetes", False, "tests-"
    yield Cluster(server, World(backend, submit), backend)  # type: ignore[arg-type]


@pytest.mark.invariant("On a cluster, elastic jobs use the free capacity of the nodes.")
def test_without_a_word_of_admins_jobs_share_what_the_nodes_have(cluster: Cluster) -> None:
    cluster.service(1)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    assert (trainers(job), taken(cluster.server)) == (NODE - 2 - 1, NODE)


def test_a_newcomer_whose_pods_find_no_node_gets_its_least(cluster: Cluster) -> None:
    first = cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    assert trainers(first) == 6
    second = cluster.world.job(name="second", roles=roles(most=20))
    cluster.rounds(6)
    second.refresh_from_db()
    assert (second.state, trainers(first), taken(cluster.server)) == ("RUNNING", 3, NODE)
    assert scaling_texts(first)[-1] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=6,
        trainers=training_messages.TRAINER_COUNT(count=3),
        beneficiary=elastic_messages.OTHER_STARTED_WORKLOADS(),
    )


@pytest.mark.invariant(
    "Elastic jobs shrink for a waiting service of higher priority and leave capacity for its next growth."
)
def test_a_service_of_higher_priority_gets_room_and_the_next_time_finds_it(cluster: Cluster) -> None:
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    cluster.service(2)
    assert cluster.served() == 0
    cluster.rounds(4)
    assert (cluster.served(), trainers(job)) == (2, 3), "two for the service, one for its next growth"
    assert scaling_texts(job)[-1] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=6, trainers=training_messages.TRAINER_COUNT(count=3), beneficiary=elastic_messages.CLUSTER_SERVICE()
    )
    cluster.service(3)
    assert cluster.served() == 3, "it need not ask twice"
    cluster.service(0)
    cluster.rounds(3, 30)
    assert trainers(job) == 6


def test_a_service_of_no_higher_priority_takes_nothing_from_jobs(cluster: Cluster) -> None:
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    cluster.service(2, priority=0)
    cluster.rounds(4)
    assert (cluster.served(), trainers(job)) == (0, 6)


def test_admins_may_leave_less_to_jobs(cluster: Cluster) -> None:
    Capacity.objects.create(resource="cpu", amount=5)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    assert (trainers(job), taken(cluster.server)) == (3, 5)


def test_without_access_to_the_cluster_jobs_share_the_capacity_set_by_admins(
    cluster: Cluster, server: FaithfulServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = RefusingServer(Refusal(403, "Forbidden"), lambda method, kind: kind == "Node")
    monkeypatch.setattr(backend_factory, "api_server", lambda: closed)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(4)
    assert trainers(job) == 1, "nobody has said anything"
    for resource, amount in (("cpu", 6), ("memory", 64 * 1024**3)):
        Capacity.objects.create(resource=resource, amount=amount)
    cluster.rounds(4)
    assert trainers(job) == 4


def test_while_the_cluster_does_not_answer_nothing_is_decided(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for resource, amount in (("cpu", 6), ("memory", 64 * 1024**3)):
        Capacity.objects.create(resource=resource, amount=amount)
    silent = RefusingServer(Refusal(0, "Unreachable"), lambda method, kind: True)
    monkeypatch.setattr(backend_factory, "api_server", lambda: silent)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(4)
    assert trainers(job) == 1
    assert Observer().observe(cluster.world.now + timedelta(seconds=1)) is None


def test_a_job_that_has_no_pods_yet_has_its_place_all_the_same(cluster: Cluster) -> None:
    first = cluster.world.job(roles=roles(most=20))
    cluster.world.rounds(4)
    assert not cluster.server.of("Pod")
    assert trainers(first) == 6


# --- Usage by others over time ----------------------------------------------------------------------------------------
def taken_by(cluster: Cluster, *seconds_ago: float) -> dict[str, list[float]]:
    return dict(external_usage.over_time([cluster.world.now - timedelta(seconds=ago) for ago in seconds_ago]))


def test_the_usage_of_services_and_other_pods_is_recorded_over_time(cluster: Cluster, server: FaithfulServer) -> None:
    cluster.service(2)
    make_pod(server, "shop", "bare", 1, {"kind": "Job", "name": "batch", "controller": True})
    cluster.world.job(roles=roles(most=20))
    cluster.rounds(30)
    cluster.service(1)
    cluster.rounds(15)
    assert taken_by(cluster, 60, 30, 0) == {"shop/web": [0, 2, 1], "": [0, 1, 1]}
    assert Elastic.objects.get().cores == NODE


def test_what_does_not_change_is_written_once(cluster: Cluster) -> None:
    cluster.service(2)
    cluster.world.job(roles=roles(most=20))
    cluster.rounds(60)
    assert list(Neighbour.objects.values_list("key", "cores")) == [("shop/web", 2)]


def test_the_usage_of_a_service_is_recorded_at_once(cluster: Cluster) -> None:
    cluster.service(2)
    cluster.world.job(roles=roles(most=20))
    cluster.rounds(5)
    cluster.service(1)
    cluster.rounds(2)
    assert taken_by(cluster, 0) == {"shop/web": [1]}


def test_nothing_is_recorded_while_the_controller_is_idle(cluster: Cluster) -> None:
    cluster.service(2)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(20)
    cluster.world.ends(job)
    cluster.rounds(20)
    assert taken_by(cluster, 30, 5) == {"shop/web": [2, 0]}


def test_another_process_ends_the_open_records_of_a_killed_one(cluster: Cluster) -> None:
    cluster.service(2)
    job = cluster.world.job(roles=roles(most=20))
    cluster.rounds(20)
    Job.objects.filter(pk=job.pk).update(elastic=False)
    cluster.world.controller = Controller("second")
    cluster.rounds(1)
    assert not Neighbour.objects.filter(ended=None).exists()


def test_after_the_end_of_its_term_a_leader_records_nothing(cluster: Cluster) -> None:
    external_usage.record(leader_lease.Term("nobody", 7), 8.0, {"shop/web": 2.0}, cluster.world.now)
    assert not Neighbour.objects.exists()


def test_records_older_than_the_retention_are_removed(cluster: Cluster) -> None:
    long_ago = cluster.world.now - external_usage.KEPT_FOR - timedelta(days=1)
    Neighbour.objects.create(key="shop/old", cores=1, begun=long_ago, ended=long_ago + timedelta(hours=1))
    cluster.service(2)
    cluster.world.job(roles=roles(most=20))
    cluster.rounds(15)
    cluster.service(1)
    cluster.rounds(15)
    assert set(Neighbour.objects.values_list("key", flat=True)) == {"shop/web"}
