"""The controller on a real cluster: ``make test-kube``. Each test has its own namespace; one controller handles all.

It has the rights of ``deploy/kubernetes/rights.yaml`` and no others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.operator.model import names
from tests.jobs.operator.kube_cluster import Cluster, Controller

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

# A process that reaches every endpoint of its environment satisfies the contract. Servers run until they are stopped;
# trainers end when they have reached all endpoints.
MEET = """
import os, socket, sys, threading, time
mine = int(os.environ["PADDLE_PORT"])
met = threading.Semaphore(0)
def serve(port):
    listening = socket.create_server(("", port))
    while True:
        listening.accept()[0].close()
        met.release()
def reach(endpoint):
    host, _, port = endpoint.rpartition(":")
    while True:
        try:
            return socket.create_connection((host, int(port)), 2).close()
        except OSError as problem:
            print("waiting for", endpoint, problem, flush=True)
            time.sleep(0.2)
threading.Thread(target=serve, args=(mine,), daemon=True).start()
if os.environ["TRAINING_ROLE"] == "PSERVER":
    if "PADDLE_GLOO_HTTP_ENDPOINT" in os.environ and os.environ["PADDLE_TRAINER_ID"] == "0":
        threading.Thread(target=serve, args=(mine + 18,), daemon=True).start()
    time.sleep(3600)
lists = ["PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_GLOO_HTTP_ENDPOINT"]
for endpoint in ",".join(os.environ[name] for name in lists if name in os.environ).split(","):
    reach(endpoint)
assert os.environ["PADDLE_TRAINER_ENDPOINTS"].count(",") + 1 == int(os.environ["PADDLE_TRAINERS_NUM"])
for _ in range(int(os.environ["PADDLE_TRAINERS_NUM"])):
    met.acquire()  # each worker has reached this one
"""
SLEEP = "import time; time.sleep(3600)"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    cluster = Cluster()
    cluster.define()
    process = Controller(cluster.kubeconfig_of_the_controller(tmp_path_factory.mktemp("controller")), elects=True)
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def cluster(controller: Controller) -> Iterator[Cluster]:
    with Cluster().with_namespace() as found:
        yield found


def pods_that(cluster: Cluster, script: str, replicas: int, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    container = {"name": "train", "image": cluster.image, "command": ["python3", "-c", script], "resources": resources}
    return {
        "replicas": replicas,
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}},
    }


def is_bare(cluster: Cluster) -> bool:
    """Whether no objects of jobs are left."""
    return not any(cluster.all(kind) for kind in ("Pod", "Service", "ConfigMap"))


def paddle_job(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}


@pytest.mark.invariant("The controller runs PaddleJobs with the rights of its own account and no others.")
@pytest.mark.parametrize("example", ["wide_and_deep", "resnet"])
def test_the_manifests_of_the_founding_page_run_without_a_portal(cluster: Cluster, example: str) -> None:
    job = yaml.safe_load((Path(__file__).parents[1] / "examples" / f"{example}.yaml").read_text())
    for role in ("ps", "worker"):
        if role in job["spec"]:
            # The same job, with an image of this cluster and without a GPU.
            template = job["spec"][role]["template"]["spec"]
            container = template["containers"][0]
            container |= {"image": cluster.image, "command": ["python3", "-c", MEET], "args": []}
            container.pop("resources", None)
            template["terminationGracePeriodSeconds"] = 0
    cluster.apply(job)
    name = job["metadata"]["name"]
    status = cluster.wait_for(name, "Completed")
    assert status["worker"]["succeeded"] == 2
    heading, line = cluster.kubectl("get", "paddlejobs", name).splitlines()
    assert heading.split()[:3] == ["NAME", "STATUS", "MODE"]
    assert line.split()[:3] == [name, "Completed", "PS" if "ps" in job["spec"] else "Collective"]


def test_a_job_by_service_meets_under_its_names(cluster: Cluster) -> None:
    job = paddle_job(
        "by-name", intranet="Service", withGloo=1, ps=pods_that(cluster, MEET, 2), worker=pods_that(cluster, MEET, 2)
    )
    cluster.apply(job)
    cluster.wait_for("by-name", "Completed")
    cluster.until("everything has been cleaned", lambda: not cluster.all("Pod") and not cluster.all("Service"))


def test_workers_are_scaled_while_they_run(cluster: Cluster) -> None:
    worker = pods_that(cluster, SLEEP, 2) | {"requests": 1, "limits": 4}
    cluster.apply(paddle_job("grow", elastic=1, worker=worker))
    cluster.wait_for("grow", "Running")
    before = cluster.uids()
    cluster.kubectl("scale", "pdj/grow", "--replicas=4")
    cluster.until("four workers run", lambda: cluster.status("grow")["worker"]["running"] == 4)
    assert before.items() <= cluster.uids().items()
    cluster.kubectl("scale", "pdj/grow", "--replicas=2")
    cluster.until("the two from the beginning are left", lambda: cluster.uids() == before)
    cluster.until("the status says so", lambda: cluster.status("grow")["worker"]["running"] == 2)


def test_a_job_that_cannot_grow_while_it_runs_restarts_with_all_pods(cluster: Cluster) -> None:
    cluster.apply(paddle_job("whole", worker=pods_that(cluster, SLEEP, 2)))
    cluster.wait_for("whole", "Running")
    before = cluster.uids()
    cluster.kubectl("scale", "pdj/whole", "--replicas=3")
    cluster.until("three workers run", lambda: cluster.status("whole")["worker"]["running"] == 3)
    assert set(before.values()).isdisjoint(cluster.uids().values())
    (config_map,) = cluster.all("ConfigMap")
    assert config_map["data"]["PADDLE_TRAINERS_NUM"] == "3"


def test_a_killed_pod_comes_back_and_the_others_are_left_alone(cluster: Cluster) -> None:
    parts = {role: pods_that(cluster, SLEEP, 2) for role in ("ps", "worker")}
    cluster.apply(paddle_job("lost", intranet="Service", **parts))
    cluster.wait_for("lost", "Running")
    before = cluster.uids()
    cluster.kubectl("delete", "pod", "lost-worker-1", "--grace-period=0", "--force")
    cluster.until(
        "another has come", lambda: cluster.uids().get("lost-worker-1") not in (None, before["lost-worker-1"])
    )
    cluster.wait_for("lost", "Running")
    assert {**cluster.uids(), "lost-worker-1": ""} == {**before, "lost-worker-1": ""}


def test_a_killed_controller_goes_on_where_it_was(cluster: Cluster, controller: Controller) -> None:
    cluster.apply(paddle_job("orphan", ps=pods_that(cluster, MEET, 1), worker=pods_that(cluster, MEET, 3)))
    cluster.until("the first pods are there", lambda: cluster.all("Pod"))
    controller.kill()
    controller.start()
    status = cluster.wait_for("orphan", "Completed")
    assert (status["attempt"], status["restarts"]) == (1, 0)


def test_a_job_is_suspended_and_goes_on(cluster: Cluster) -> None:
    cluster.apply(paddle_job("rest", worker=pods_that(cluster, SLEEP, 2)))
    started = cluster.wait_for("rest", "Running")["startTime"]
    cluster.kubectl(
        "patch", "paddlejobs", "rest", "--type=merge", "--patch", '{"spec": {"runPolicy": {"suspend": true}}}'
    )
    status = cluster.wait_for("rest", "Suspended")
    assert "startTime" not in status
    cluster.until(
        "nothing is left", lambda: not [item for kind in ("Pod", "Service", "ConfigMap") for item in cluster.all(kind)]
    )
    cluster.kubectl(
        "patch", "paddlejobs", "rest", "--type=merge", "--patch", '{"spec": {"runPolicy": {"suspend": false}}}'
    )
    assert cluster.wait_for("rest", "Running")["startTime"] > started


def test_a_deleted_job_takes_everything_with_it(cluster: Cluster) -> None:
    cluster.apply(paddle_job("gone", worker=pods_that(cluster, SLEEP, 2)))
    cluster.wait_for("gone", "Running")
    cluster.kubectl("delete", "paddlejobs", "gone")
    cluster.until(
        "nothing is left", lambda: not [item for kind in ("Pod", "Service", "ConfigMap") for item in cluster.all(kind)]
    )


def test_a_failing_pod_is_tried_again_as_often_as_it_may_be(cluster: Cluster) -> None:
    worker = pods_that(cluster, "import sys; sys.exit(7)", 1)
    cluster.apply(paddle_job("fails", worker=worker, runPolicy={"backoffLimit": 1}))
    status = cluster.wait_for("fails", "Failed")
    assert (status["restarts"], status["attempt"], status["reason"]) == (1, 2, "BackoffLimitExceeded")
    assert status["message"] == "fails-worker-0 failed with code 7."


@pytest.mark.parametrize(
    ("spec", "reason", "expected"),
    [
        ({"containers": [{"image": "{registry}/base/nothing:1"}]}, "ImagePull", "nothing:1"),
        ({"nodeSelector": {"accelerator": "none"}}, "Unschedulable", "finds no node"),
        (
            {"containers": [{"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
            "Refused",
            "must be less than or equal to cpu limit",
        ),
        ("quota", "Refused", "exceeded quota"),
    ],
    ids=["no image", "no node", "not a pod", "quota"],
)
def test_the_reason_why_a_job_waits_is_reported(cluster: Cluster, spec: Any, reason: str, expected: str) -> None:
    worker = pods_that(cluster, SLEEP, 2)
    template = worker["template"]["spec"]
    if spec == "quota":
        cluster.kubectl("create", "quota", "few", "--hard=pods=1")
        cluster.until_enforced("few")
        spec = {}
    for key, value in copy.deepcopy(spec).items():
        if key == "containers":
            template["containers"][0] |= value[0]
        else:
            template[key] = value
    image = template["containers"][0]["image"]
    template["containers"][0]["image"] = image.replace("{registry}", cluster.registry)
    cluster.apply(paddle_job("waits", worker=worker))

    def explains() -> bool:
        status = cluster.status("waits")
        return status.get("reason") == reason and expected in status["message"]

    cluster.until(f"the reason is {reason} with {expected!r}", explains)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"cleanPodPolicy": "Sometimes"}, 'Unsupported value: "Sometimes"'),
        (
            {"worker": {"replicas": 0, "template": {"spec": {"containers": [{"name": "a"}]}}}},
            "greater than or equal to 1",
        ),
        ({"worker": {"replicas": 1, "template": {"spec": {}}}}, "spec.worker.template.spec.containers"),
    ],
    ids=["policy", "replicas", "containers"],
)
def test_the_api_server_refuses_what_cannot_be(cluster: Cluster, spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(AssertionError, match=expected.replace(".", r"\.")):
        cluster.apply(paddle_job("bad", **{"worker": pods_that(cluster, SLEEP, 1), **spec}))


def test_events_report_what_was_done(cluster: Cluster) -> None:
    cluster.apply(paddle_job("reported", worker=pods_that(cluster, SLEEP, 2)))
    cluster.wait_for("reported", "Running")
    for text in ("created Pod reported-worker-0, reported-worker-1", "The job is running."):
        cluster.until(
            f"there is the event {text!r}",
            lambda text=text: text in cluster.kubectl("describe", "paddlejobs", "reported"),
        )
