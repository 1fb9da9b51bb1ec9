"""Jobs on a real cluster, from the submission to the model, whatever is killed meanwhile: ``make test-kube``.

The portal is a whole one on this machine, its jobs meet in an etcd that asks for users.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.backends.kubernetes_manifests import job_name, pod_name
from jobs.kubernetes.namespaces import name_of
from regatta import Client
from regatta.errors import PortalError
from regatta.job import Job
from runtime.coordination.etcd_address import EtcdAddress
from tests.end_to_end import code, processes
from tests.end_to_end.house import House
from tests.etcd_server import EtcdServer
from tests.jobs.kubernetes import leftovers
from tests.jobs.kubernetes.cluster import Cluster, own_prefix, wait_until
from tests.jobs.kubernetes.surroundings import own_address, runtime_image

pytestmark = [pytest.mark.kube, pytest.mark.timeout(480)]

SECONDS = 150.0
PREFIX = own_prefix("test")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The namespace of the admin's own, which is where the jobs run; the portal makes it."""
    found = Cluster()
    found.define()
    found.namespace = name_of("admin", PREFIX)
    yield found
    found.api.call("DELETE", f"/api/v1/namespaces/{found.namespace}")


@pytest.fixture(scope="module")
def store(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), host=own_address(cluster.kubeconfig))
    server.start()
    server.switch_authentication_on()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def house(cluster: Cluster, store: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(
        tmp_path_factory.mktemp("house") / "data",
        host=own_address(cluster.kubeconfig),
        REGATTA_BACKEND="kubernetes",
        REGATTA_KUBECONFIG=cluster.kubeconfig,
        REGATTA_KUBERNETES_IMAGE=runtime_image(cluster.registry),
        REGATTA_KUBERNETES_PREFIX=PREFIX,
        **{leftovers.RUN: leftovers.MARK},
        REGATTA_COORDINATION=EtcdAddress((store.server,), "/site", "root", store.password).url,
        REGATTA_SIGN_IN_RATE="1000/min",
    )
    with made.open() as house:
        yield house


@pytest.fixture
def portal(house: House) -> Iterator[Client]:
    with house.client() as client:
        yield client


@pytest.fixture
def run(portal: Client) -> Iterator[Callable[..., Job]]:
    """Submits; whatever is left of it is cancelled."""
    begun: list[Job] = []

    def submit(spec: dict[str, Any], **roles: int) -> Job:
        wanted = {"trainer": {"replicas": 2, "max": 8}, "pserver": {"replicas": 2}}
        small = {"cpu": 0.05, "memory": "256Mi"}
        spec = {**spec, "roles": {name: {**role, **small} for name, role in wanted.items()}}
        for name, replicas in roles.items():
            spec["roles"][name]["replicas"] = replicas
        begun.append(portal.submit(spec, namespace="admin"))
        return begun[-1]

    yield submit
    for job in begun:
        with suppress(PortalError):  # it has ended by itself
            portal.cancel(job.id)


def endless(name: str) -> dict[str, Any]:
    """Trains until it is cancelled."""
    return code.slow(name, passes=500, pause=0.3)


def steps(portal: Client, job: Job, replica: str) -> list[int]:
    lines = (line for line in portal.logs(job.id, replica=replica) if line.text.startswith("step "))
    return [int(line.text.split()[1]) for line in lines]


def training(portal: Client, job: Job, *replicas: str, beyond: int = 2) -> Callable[[], bool]:
    """Whether each of them has come that far."""
    return lambda: all(max(steps(portal, job, one), default=0) > beyond for one in replicas)


def attempt_of(cluster: Cluster, job: Job) -> str:
    """The id of the job's present attempt, from the labels of its PaddleJob."""
    found = json.loads(cluster.kubectl("get", "pdj", "-l", f"regatta/job={job.id}", "-o", "json"))["items"]
    assert found, "the attempt has a PaddleJob"
    newest = max(found, key=lambda one: int(one["metadata"]["labels"]["regatta/number"]))
    return str(newest["metadata"]["labels"]["regatta/attempt"])


def kill(cluster: Cluster, job: Job, replica: str) -> None:
    """End its container as the kernel would: at once, without a word to it."""
    pod = pod_name(attempt_of(cluster, job), replica)
    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def back(portal: Client, job: Job, replica: str) -> Callable[[], bool]:
    return lambda: any(event["text"].startswith(f"{replica} is back after") for event in portal.events(job.id))


# --- The whole way ---------------------------------------------------------------------------------------------------
def test_from_the_submission_to_the_downloaded_model(
    portal: Client, run: Callable[..., Job], cluster: Cluster, store: EtcdServer, tmp_path: Path
) -> None:
    job = run({**portal.example("fit-a-line"), "passes": 20})
    ended = portal.wait(job.id, SECONDS)
    assert (ended.state, ended.why) == ("SUCCEEDED", "Trained with 2 trainers."), ended
    portal.download(job.id, "model.npz", tmp_path / "model.npz")
    assert {"w", "b"} <= set(np.load(tmp_path / "model.npz").files)
    assert len(portal.metrics(job.id, "cost")["cost"].x) > 10
    assert {line.replica for line in portal.logs(job.id)} == {
        *("master-0", "pserver-0", "pserver-1", "trainer-0", "trainer-1")
    }
    wait_until(lambda: not left(cluster, job), "nothing is left on the cluster")
    users = store.ctl("user", "list", account=f"root:{store.password}")
    assert f"regatta-{job.id}-1" not in users


def left(cluster: Cluster, job: Job) -> str:
    return cluster.kubectl("get", "pdj,pods,secrets", "-l", f"regatta/job={job.id}", "-o", "name")


def test_no_secret_of_a_job_is_told_anywhere(
    portal: Client, run: Callable[..., Job], cluster: Cluster, house: House
) -> None:
    job = run({**endless("secrets"), "env": {"API_KEY": "open sesame"}})
    wait_until(training(portal, job, "trainer-0"), "it trains")
    shown = cluster.kubectl("get", "pdj,pods,configmaps,events", "-o", "yaml") + house.printed()
    shown += "".join(line.text for line in portal.logs(job.id))
    for secret in ("rga_", "open sesame", "etcd://"):
        assert secret not in shown


# --- More and fewer --------------------------------------------------------------------------------------------------
def test_trainers_join_and_leave_in_mid_run(portal: Client, run: Callable[..., Job]) -> None:
    job = run(endless("scale"))
    wait_until(training(portal, job, "trainer-0", "trainer-1"), "it trains")
    portal.scale(job.id, trainer=4)
    wait_until(training(portal, job, "trainer-2", "trainer-3"), "newcomers train")
    portal.scale(job.id, trainer=2)

    def left() -> bool:
        states = {one.name: one.state for one in portal.job(job.id).replicas}
        return states["trainer-2"] == states["trainer-3"] == "exited"

    wait_until(left, "they have left")
    before = max(steps(portal, job, "trainer-0"))
    wait_until(training(portal, job, "trainer-0", "trainer-1", beyond=before), "the others go on")
    assert portal.job(job.id).attempt == 1


# --- Whoever is killed -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("victim", ["trainer-1", "pserver-0", "master-0"])
def test_a_killed_pod_is_started_again_and_the_job_goes_on(
    portal: Client, run: Callable[..., Job], cluster: Cluster, victim: str
) -> None:
    job = run(endless(f"kill-{victim}"))
    wait_until(training(portal, job, "trainer-0", "trainer-1"), "it trains")
    kill(cluster, job, victim)
    wait_until(back(portal, job, victim), "it is back")
    before = max(steps(portal, job, "trainer-0"))
    wait_until(training(portal, job, "trainer-0", beyond=before + 3), "the job goes on")
    assert portal.job(job.id).attempt == 1
    told = steps(portal, job, "trainer-0")
    assert told == sorted(set(told)), "no line is doubled"


def test_a_killed_portal_loses_and_doubles_nothing(portal: Client, run: Callable[..., Job], house: House) -> None:
    job = run(endless("kill-portal"))
    wait_until(training(portal, job, "trainer-0", "trainer-1"), "it trains")
    house.crash()
    house.start()
    before = max(steps(portal, job, "trainer-0"))
    wait_until(training(portal, job, "trainer-0", "trainer-1", beyond=before + 5), "what was said meanwhile comes")
    for trainer in ("trainer-0", "trainer-1"):
        told = steps(portal, job, trainer)
        assert told == list(range(1, len(told) + 1)), "every line is there, once, in order"
    assert (portal.job(job.id).state, portal.job(job.id).attempt) == ("RUNNING", 1)


def test_a_portal_that_is_stopped_in_order_leaves_its_jobs_running(
    portal: Client, run: Callable[..., Job], house: House
) -> None:
    job = run(endless("stop-portal"))
    wait_until(training(portal, job, "trainer-0"), "it trains")
    house.interrupt()
    house.start()
    before = max(steps(portal, job, "trainer-0"))
    wait_until(training(portal, job, "trainer-0", beyond=before + 5), "it has gone on")
    assert (portal.job(job.id).state, portal.job(job.id).attempt) == ("RUNNING", 1)
    told = steps(portal, job, "trainer-0")
    assert told == list(range(1, len(told) + 1))


def test_while_there_is_no_controller_jobs_go_on_and_what_is_wished_for_is_done_later(
    portal: Client, run: Callable[..., Job], house: House
) -> None:
    job = run(endless("kill-controller"))
    wait_until(training(portal, job, "trainer-0", "trainer-1"), "it trains")
    for process in house.processes():
        if "jobs.kubernetes" in process.command:
            processes.kill(process.pid)
    portal.scale(job.id, trainer=3)
    wait_until(training(portal, job, "trainer-2"), "the newcomer trains")
    assert portal.job(job.id).attempt == 1


def test_a_job_that_is_cancelled_leaves_nothing_on_the_cluster(
    portal: Client, run: Callable[..., Job], cluster: Cluster
) -> None:
    job = run(endless("cancel"))
    wait_until(training(portal, job, "trainer-0"), "it trains")
    portal.cancel(job.id)
    assert portal.wait(job.id, SECONDS).state == "CANCELLED"
    wait_until(lambda: not left(cluster, job), "nothing is left on the cluster")


def test_whose_paddle_job_is_deleted_is_tried_again_with_a_reason(
    portal: Client, run: Callable[..., Job], cluster: Cluster
) -> None:
    job = run(endless("paddle-job-deleted"))
    wait_until(training(portal, job, "trainer-0"), "it trains")
    cluster.kubectl("delete", "pdj", job_name(attempt_of(cluster, job)), "--wait=false")
    wait_until(lambda: portal.job(job.id).attempt == 2, "it is tried again")
    wait_until(lambda: portal.job(job.id).state == "RUNNING", "it runs")


# --- What the cluster refuses ----------------------------------------------------------------------------------------
def test_a_quota_of_the_cluster_is_the_job_s_reason_within_ten_seconds(
    portal: Client, run: Callable[..., Job], cluster: Cluster
) -> None:
    job = run(endless("refused"))
    wait_until(training(portal, job, "trainer-0"), "it trains")
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    cluster.api.call("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": {"limits.memory": "1Mi"}}})
    try:
        portal.scale(job.id, trainer=3)
        wait_until(lambda: "exceeded quota" in portal.job(job.id).why, "the job says why it waits", 10)
    finally:
        cluster.api.call("DELETE", f"{path}/none")
    wait_until(training(portal, job, "trainer-2"), "it begins when there is room")
