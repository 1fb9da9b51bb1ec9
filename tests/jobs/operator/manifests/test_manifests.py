"""The objects of a job, by vectors C10 to C24 of paddle-operator 0.3.5."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jobs.kubernetes_objects import pod_names
from jobs.operator.manifests.podgroup import amount_of, is_volcano_s, pod_group
from jobs.operator.manifests.pods import pod
from jobs.operator.manifests.services import service
from jobs.operator.model import names
from jobs.operator.model.pod_options import PodOptions
from jobs.operator.model.spec import read
from tests.jobs.operator.world import paddle_job, role, template


def pod_of(item: dict[str, Any], role_name: str, index: int, **options: Any) -> dict[str, Any]:
    job = read(item)
    return pod(job, job.roles[role_name], index, 1, PodOptions(**options))


def environment(body: dict[str, Any], container: int = 0) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in body["spec"]["containers"][container]["env"]
    }


def test_c9_heterogeneous_workers_are_called_heter() -> None:
    job = paddle_job(ps=1, worker=1, heter=role(1))
    assert environment(pod_of(job, "heter", 0))["TRAINING_ROLE"] == "HETER"


def test_c10_a_pod_has_its_identity_in_name_labels_and_environment() -> None:
    body = pod_of(paddle_job(ps=1, worker=2), "worker", 1)
    metadata, spec = body["metadata"], body["spec"]
    assert metadata["name"] == spec["hostname"] == spec["subdomain"] == "wd-worker-1"
    assert {"paddle-res-name": "wd-worker-1", "paddle-res-type": "worker"}.items() <= metadata["labels"].items()
    assert metadata["annotations"]["paddle-resource"] == "worker"
    variables = environment(body)
    assert variables["PADDLE_TRAINER_ID"] == "1"
    assert variables["TRAINING_ROLE"] == variables["PADDLE_TRAINING_ROLE"] == "TRAINER"


@pytest.mark.parametrize(
    ("intranet", "address"),
    [
        ("PodIP", {"fieldRef": {"fieldPath": "status.podIP"}}),
        ("Service", "wd-ps-0"),
        ("Host", {"fieldRef": {"fieldPath": "status.podIP"}}),
    ],
)
def test_c11_a_pod_s_own_address_is_its_ip_or_its_name(intranet: str, address: object) -> None:
    assert environment(pod_of(paddle_job(ps=1, worker=1, intranet=intranet), "ps", 0))["POD_IP"] == address


def test_c12_with_services_the_first_container_opens_a_port() -> None:
    two = {"name": "log", "image": "log:1"}
    job = paddle_job(intranet="Service", worker={"replicas": 1, "template": template()})
    job["spec"]["worker"]["template"]["spec"]["containers"].append(two)
    first, second = pod_of(job, "worker", 0)["spec"]["containers"]
    assert first["ports"] == [{"containerPort": 36000}]
    assert "ports" not in second


def test_c12_on_the_nodes_network_the_pod_has_it_too() -> None:
    assert pod_of(paddle_job(worker=1, intranet="Host"), "worker", 0)["spec"]["hostNetwork"] is True


@pytest.mark.parametrize(
    ("spec", "role_name", "expected"),
    [
        ({"elastic": 1, "worker": role(1, restartPolicy="Never")}, "worker", "OnFailure"),
        ({"worker": role(1, restartPolicy="Always")}, "worker", "Always"),
        ({"worker": role(1), "intranet": "Service"}, "worker", "OnFailure"),
        ({"ps": role(1), "intranet": "Service"}, "ps", "Never"),
        ({"worker": role(1), "intranet": "PodIP"}, "worker", "Never"),
        ({"worker": role(1), "intranet": "Host"}, "worker", "Never"),
    ],
)
def test_c13_restart_policy(spec: dict[str, Any], role_name: str, expected: str) -> None:
    assert pod_of(paddle_job(**spec), role_name, 0)["spec"]["restartPolicy"] == expected


def test_c14_elastic_pods_get_their_number_and_read_no_config_map() -> None:
    body = pod_of(paddle_job(elastic=1, worker=3), "worker", 0)
    assert "envFrom" not in body["spec"]["containers"][0]
    variables = environment(body)
    assert (
        variables["PADDLE_ELASTIC_JOB_ID"],
        variables["PADDLE_ELASTIC_NP"],
        variables["PADDLE_ELASTIC_TIMEOUT"],
    ) == (
        "team-wd",
        "3",
        "60",
    )


def test_elastic_pods_get_the_bounds() -> None:
    job = paddle_job(elastic=1)
    job["spec"]["worker"] = role(3, requests=2, limits=4)
    assert environment(pod_of(job, "worker", 0))["PADDLE_ELASTIC_NP"] == "2:4"


def test_pods_that_are_not_elastic_read_the_config_map_of_the_job() -> None:
    body = pod_of(paddle_job(worker=1), "worker", 0)
    assert body["spec"]["containers"][0]["envFrom"] == [{"configMapRef": {"name": "wd"}}]


def test_pods_of_a_job_with_a_master_need_not_wait_for_the_config_map() -> None:
    body = pod_of(paddle_job(worker=1, master=role(1)), "worker", 0)
    assert body["spec"]["containers"][0]["envFrom"] == [{"configMapRef": {"name": "wd", "optional": True}}]


def test_c15_the_template_s_own_labels_stay_and_the_template_is_not_changed() -> None:
    job = paddle_job(worker=1)
    job["spec"]["worker"]["template"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    before = copy.deepcopy(job)
    metadata = pod_of(job, "worker", 0)["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")
    assert job == before


def test_c16_of_two_values_of_one_variable_the_controller_s_comes_last() -> None:
    job = paddle_job(worker=1)
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["env"] = [{"name": "PADDLE_TRAINER_ID", "value": "9"}]
    entries = pod_of(job, "worker", 0)["spec"]["containers"][0]["env"]
    assert [entry["value"] for entry in entries if entry["name"] == "PADDLE_TRAINER_ID"] == ["9", "0"]


def test_c17_every_pod_has_a_headless_service_of_twenty_ports() -> None:
    body = service(read(paddle_job(ps=1, worker=1)), "wd-ps-0")
    spec = body["spec"]
    assert body["metadata"]["name"] == "wd-ps-0"
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["selector"] == {"paddle-res-name": "wd-ps-0"}
    assert [(port["name"], port["port"]) for port in spec["ports"]] == [(f"p-{n}", 36000 + n) for n in range(20)]


def test_c18_a_pod_waits_for_the_names_of_its_own_role() -> None:
    job = paddle_job(ps=2, worker=1)
    job["spec"]["ps"]["template"]["spec"]["initContainers"] = [{"name": "mine", "image": "i"}]
    mine, waiting = pod_of(job, "ps", 0, init_image="alpine:3.10")["spec"]["initContainers"]
    assert mine["name"] == "mine"
    assert (waiting["name"], waiting["image"]) == ("coord-paddle", "alpine:3.10")
    assert 'for h in "wd-ps-0" "wd-ps-1"; do' in waiting["command"][2]
    assert "worker" not in waiting["command"][2]


def volcano_job() -> dict[str, Any]:
    """``wide_and_deep_volcano.yaml``."""
    return paddle_job(
        schedulingPolicy={"queue": "default"},
        ps={"replicas": 2, "template": template(schedulerName="volcano")},
        worker={"replicas": 2, "template": template(schedulerName="volcano")},
    )


def volcano_job_with_resources() -> dict[str, Any]:
    job = volcano_job()
    for name, resources in (("worker", {"requests": {"cpu": "200m"}}), ("ps", {"limits": {"cpu": "300m"}})):
        job["spec"][name]["template"]["spec"]["containers"][0]["resources"] = resources
        job["spec"][name]["template"]["spec"]["initContainers"] = [
            {"name": "i", "resources": {"requests": {"cpu": "9"}}}
        ]
    return job


def test_c19_c21_the_pod_group_requests_all_pods_and_their_requests_or_limits() -> None:
    spec = pod_group(read(volcano_job_with_resources()))["spec"]
    assert spec == {"minMember": 4, "minResources": {"cpu": "1"}, "queue": "default"}


def test_c20_the_scheduling_policy_of_the_job_counts() -> None:
    job = volcano_job_with_resources()
    job["spec"]["schedulingPolicy"] |= {"minAvailable": 3, "priorityClass": "p", "minResources": {"cpu": "7"}}
    spec = pod_group(read(job))["spec"]
    assert (spec["minMember"], spec["priorityClassName"], spec["minResources"]) == (3, "p", {"cpu": "7"})


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", 0.5), ("2", 2), (3, 3), ("1.5", 1.5), ("10Mi", 10 * 2**20), ("1k", 1000), ("1e3", 1000), ("1E", 10**18)],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: object, amount: float) -> None:
    assert amount_of(text) == amount


def test_c22_a_role_with_another_scheduler_keeps_the_job_from_volcano() -> None:
    job = volcano_job()
    job["spec"]["ps"]["template"]["spec"]["schedulerName"] = "foo"
    assert is_volcano_s(read(volcano_job()))
    assert not is_volcano_s(read(job))


def test_pods_that_volcano_places_name_their_group() -> None:
    body = pod_of(volcano_job(), "worker", 0, volcano=True)
    assert body["spec"]["schedulerName"] == "volcano"
    assert (
        body["metadata"]["annotations"]
        | {
            "scheduling.k8s.io/group-name": "wd",
            "volcano.sh/task-spec": "worker",
            "volcano.sh/job-name": "wd",
            "volcano.sh/queue-name": "default",
        }
        == body["metadata"]["annotations"]
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-b-worker-12", ("worker", 12)), ("x-y", ("", 0)), ("job-master-0", ("master", 0)), ("ps-0", ("", 0))],
)
def test_c23_a_pod_s_name_has_role_and_index(name: str, expected: tuple[str, int]) -> None:
    assert pod_names.role_and_index(name) == expected


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        (paddle_job(ps=1, worker=1), "PS"),
        (paddle_job(worker=2), "Collective"),
        (paddle_job(worker=1), "Single"),
        (paddle_job(heter=role(1)), "Single"),
    ],
)
def test_c24_the_mode_follows_from_the_roles(job: dict[str, Any], mode: str) -> None:
    assert read(job).mode == mode


def test_k1_every_object_belongs_to_its_job() -> None:
    job = read(paddle_job(worker=1))
    for body in (pod(job, job.roles["worker"], 0, 1, PodOptions()), service(job, "wd-worker-0"), pod_group(job)):
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
            "PaddleJob",
            "uid-of-wd",
            True,
            True,
        )


def test_a_template_can_read_role_and_index_from_the_pod_s_labels() -> None:
    labels = pod_of(paddle_job(worker=1, master=role(1)), "master", 0)["metadata"]["labels"]
    assert (
        labels[names.JOB_LABEL],
        labels[names.ROLE_LABEL],
        labels[names.INDEX_LABEL],
        labels[names.ATTEMPT_LABEL],
    ) == ("wd", "master", "0", "1")
