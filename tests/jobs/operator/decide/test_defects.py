"""The 17 defects of paddle-operator 0.3.5, which this controller does not have. Test names have their numbers."""

from __future__ import annotations

import pytest

from jobs.operator.decide.peer_config import desired_config_map
from jobs.operator.manifests.pods import pod
from jobs.operator.model import names
from jobs.operator.model.actions import Create, Delete
from jobs.operator.model.pod_options import PodOptions
from jobs.operator.model.spec import read
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, role, running


def config_data(intranet: str, addresses: dict[str, str], **spec: object) -> dict[str, str]:
    job = paddle_job(intranet=intranet, **spec)
    job["metadata"]["annotations"] = {"host-port": "35020"}
    pods = {name: {"metadata": {"name": name, "uid": name}, "status": {"podIP": ip}} for name, ip in addresses.items()}
    body = desired_config_map(read(job), pods, None, 1)
    assert body is not None
    return dict(body["data"])


BOTH = {"wd-ps-0": "10.0.0.1", "wd-worker-0": "10.0.0.2"}


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d1_the_phase_follows_the_pods_that_are_there_now() -> None:
    world = World(paddle_job(ps=1, worker=1))
    world.settle()
    world.all_pods(running())
    world.step()
    assert (world.phase, world.status["ps"]["running"], "startTime" in world.status) == ("Running", 1, True)


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d2_an_equal_status_is_not_written() -> None:
    world = World(paddle_job(ps=1, worker=1)).up()
    world.later(3600)
    assert world.plan().status is None


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_d3_the_port_variable_is_the_port_of_the_endpoints(intranet: str) -> None:
    data = config_data(intranet, BOTH, ps=1, worker=1)
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"].rpartition(":")[2] == data["PADDLE_PORT"]


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_d4_gloo_meets_on_a_port_of_its_own(intranet: str) -> None:
    data = config_data(intranet, BOTH, ps=1, worker=1, withGloo=1)
    host, _, port = data["PADDLE_GLOO_HTTP_ENDPOINT"].rpartition(":")
    assert int(port) == int(data["PADDLE_PORT"]) + 18
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"].startswith(f"{host}:")


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d5_addresses_of_ipv6_are_in_brackets() -> None:
    data = config_data("PodIP", {"wd-worker-0": "10.0.0.1", "wd-worker-1": "fd00::1"}, worker=2)
    assert data["PADDLE_TRAINERS"] == "10.0.0.1,[fd00::1]"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == f"10.0.0.1:{data['PADDLE_PORT']},[fd00::1]:{data['PADDLE_PORT']}"


def first_pod(**options: str) -> dict:  # type: ignore[type-arg]
    job = read(paddle_job(worker=1, intranet="Host"))
    return pod(job, job.roles["worker"], 0, 1, PodOptions(**options))["spec"]


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d6_pods_on_their_nodes_network_use_the_cluster_s_dns() -> None:
    assert first_pod()["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d7_the_init_container_has_mebibytes_and_limits() -> None:
    (waiting,) = first_pod(init_image="busybox")["initContainers"]
    assert waiting["resources"]["requests"] == {"cpu": "10m", "memory": "10Mi"}
    assert set(waiting["resources"]["limits"]) == {"cpu", "memory"}


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d8_a_pod_that_comes_back_elsewhere_updates_the_config_map() -> None:
    world = World(paddle_job(ps=1, worker=2)).up()
    old = world.config_data
    world.lose("wd-worker-1")
    world.settle()
    world.up()
    moved = {item["metadata"]["name"]: item["status"]["podIP"] for item in world.of("Pod")}
    assert world.config_data is not None
    assert world.config_data["PADDLE_TRAINERS"] == f"{moved['wd-worker-0']},{moved['wd-worker-1']}"
    assert world.config_data != old


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d8_a_pod_whose_address_changes_updates_the_config_map() -> None:
    world = World(paddle_job(worker=2)).up()
    world.objects["Pod", "wd-worker-1"]["status"]["podIP"] = "10.9.9.9"
    world.up()
    assert world.status["attempt"] == 2


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
@pytest.mark.parametrize("end", [SUCCEEDED, failed()], ids=["completed", "failed"])
def test_d9_nothing_is_made_after_the_end(end: dict[str, object]) -> None:
    world = World(paddle_job(worker=2, cleanPodPolicy="Never")).up()
    world.all_pods(end)
    world.settle()
    world.objects = {key: item for key, item in world.objects.items() if key[0] != "Pod"}
    world.settle()
    assert world.pods() == []


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d10_everything_is_made_and_everything_is_deleted_in_one_pass() -> None:
    world = World(paddle_job(ps=20, worker=30))
    assert sum(isinstance(action, Create) for action in world.step().actions) == 100
    world.all_pods(running())
    world.settle()
    world.all_pods(SUCCEEDED)
    assert sum(isinstance(action, Delete) for action in world.step().actions) == 100


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d11_a_deletion_names_the_uid_of_one_object() -> None:
    world = World(paddle_job(worker=1)).up()
    uid = world.objects["Pod", "wd-worker-0"]["metadata"]["uid"]
    world.all_pods(SUCCEEDED)
    assert Delete("Pod", "wd-worker-0", uid) in world.step().actions


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d12_a_job_is_done_when_its_workers_are_though_its_servers_still_serve() -> None:
    world = World(paddle_job(ps=1, worker=1)).up()
    world.pod("wd-worker-0", SUCCEEDED)
    world.settle()
    assert (world.phase, world.pods()) == ("Completed", [])


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d13_an_impossible_specification_is_an_error_message() -> None:
    assert set(read(paddle_job(worker=role(0), cleanPodPolicy="Whenever")).problems) == {
        'spec.cleanPodPolicy is "Whenever". Write one of Always, Never, OnFailure, OnCompletion.',
        "spec.worker.replicas is 0. Write 1 or more, or leave spec.worker out.",
    }


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d14_bounds_of_replicas_count_and_the_generation_is_reported() -> None:
    world = World(paddle_job(elastic=1, worker=role(9, requests=2, limits=4)))
    world.settle()
    assert (len(world.pods()), world.status["observedGeneration"]) == (4, 1)


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d15_every_action_has_the_kind_of_its_object() -> None:
    made = World(paddle_job(ps=1)).plan().actions
    assert {(action.kind, action.name) for action in made if isinstance(action, Create)} == {
        ("Pod", "wd-ps-0"),
        ("Service", "wd-ps-0"),
    }


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d16_every_container_gets_its_identity() -> None:
    job = paddle_job(worker=1)
    job["spec"]["worker"]["template"]["spec"]["containers"].append({"name": "log", "image": "log:1"})
    parsed = read(job)
    for container in pod(parsed, parsed.roles["worker"], 0, 1, PodOptions())["spec"]["containers"]:
        assert {"name": "TRAINING_ROLE", "value": "TRAINER"} in container["env"]
        assert container["envFrom"] == [{"configMapRef": {"name": "wd"}}]


@pytest.mark.invariant("The controller reproduces none of the 17 known defects of paddle-operator 0.3.5.")
def test_d17_a_name_too_long_for_its_pods_is_refused() -> None:
    most = names.LABEL_LIMIT - len("-worker-9")
    assert read(paddle_job("j" * most, worker=10)).problems == ()
    (problem,) = read(paddle_job("j" * most, worker=11)).problems
    assert "Make it 1 shorter." in problem
