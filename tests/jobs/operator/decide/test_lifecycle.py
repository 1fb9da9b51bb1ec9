"""The lifecycle of a job, by vectors L1 to L19 and K2 to K4."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.decide.host_ports import HostPorts
from jobs.operator.decide.status import Record, current_pods
from jobs.operator.model import spec as specification
from jobs.operator.model.actions import Create, Delete, Patch, PatchJob
from jobs.operator.model.observed import Settings
from jobs.operator.model.pod_options import PodOptions
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, role, running


def condition(world: World, kind: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in world.status["conditions"] if c["type"] == kind)


def test_l1_pods_and_services_come_together_and_the_config_map_when_all_have_addresses() -> None:
    world = World(paddle_job(ps=3, worker=2))
    world.settle()
    assert (len(world.of("Pod")), len(world.of("Service")), world.config_data) == (5, 5, None)
    world.all_pods({"phase": "Pending"})
    world.settle()
    assert world.config_data is not None


def test_l2_with_an_address_missing_there_is_no_config_map() -> None:
    world = World(paddle_job(ps=3, worker=2))
    world.settle()
    for name in world.pods()[:4]:
        world.pod(name, {"phase": "Pending"})
    world.settle()
    assert world.config_data is None


def scaled(world: World) -> World:
    world.change({"spec": {"ps": {"replicas": 1}, "worker": {"replicas": 4}}})
    world.settle()
    return world


def refs(world: World) -> tuple[int, int]:
    return len(world.status["ps"]["refs"]), len(world.status["worker"]["refs"])


WAITING = {
    "phase": "Pending",
    "containerStatuses": [{"ready": False, "state": {"waiting": {"reason": "CreateContainerConfigError"}}}],
}


def test_nodes_that_wait_for_the_config_map_are_woken_once_after_a_pause() -> None:
    world = World(paddle_job(worker=2))
    world.settle()
    world.all_pods(WAITING)
    world.settle()
    assert (world.config_data is not None, world.plan().requeue_after) == (True, 1)
    world.later(1)
    (config_data,) = (item["metadata"]["uid"] for item in world.of("ConfigMap"))
    assert [action for action in world.step().actions if isinstance(action, Patch)] == [
        Patch("Pod", name, {"metadata": {"annotations": {"batch.paddlepaddle.org/notified": config_data}}})
        for name in world.pods()
    ]
    assert world.settle() == 0


def test_a_leaving_pod_of_a_silent_node_is_deleted_after_a_while() -> None:
    world = World(paddle_job(worker=2), slow=True).up()
    world.change({"spec": {"worker": {"replicas": 1}}})
    world.settle()
    assert (len(world.pods()), world.plan().requeue_after) == (2, 120)
    world.later(120)
    world.up()
    assert (world.pods(), world.phase) == (["wd-worker-0"], "Running")


def test_l3_u1_roles_can_be_made_larger_and_smaller() -> None:
    world = World(paddle_job(ps=3, worker=2, cleanPodPolicy="Never", intranet="Service"))
    world.settle()
    assert refs(world) == (3, 2)
    assert world.status["mode"] == "PS"
    scaled(world)
    assert world.pods() == ["wd-ps-0", "wd-worker-0", "wd-worker-1", "wd-worker-2", "wd-worker-3"]
    assert refs(world) == (1, 4)


def test_l4_a_job_restarts_when_its_recorded_members_change() -> None:
    world = World(paddle_job(ps=3, worker=2)).up()
    before = {pod["metadata"]["uid"] for pod in world.of("Pod")}
    scaled(world).all_pods(running())
    world.settle()
    assert world.config_data is not None
    assert world.config_data["PADDLE_TRAINERS_NUM"] == "4"
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in world.of("Pod"))
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Running", 2, 0)


@pytest.mark.parametrize("spec", [{"elastic": 1}, {"master": role(1)}], ids=["elastic", "with a master"])
def test_l4_processes_that_meet_again_by_themselves_go_on(spec: dict[str, Any]) -> None:
    world = World(paddle_job(worker=2, **spec)).up()
    before = {pod["metadata"]["uid"] for pod in world.of("Pod")}
    world.change({"spec": {"worker": {"replicas": 3}}})
    world.settle()
    world.all_pods(running())
    world.settle()
    assert before < {pod["metadata"]["uid"] for pod in world.of("Pod")}
    assert world.config_data is not None
    assert world.config_data["PADDLE_TRAINERS_NUM"] == "3"
    assert world.status["attempt"] == 1


@pytest.mark.parametrize(
    ("policy", "end", "kept"),
    [
        ("", SUCCEEDED, False),
        ("", failed(), True),
        ("Always", SUCCEEDED, False),
        ("Always", failed(), False),
        ("OnCompletion", SUCCEEDED, False),
        ("OnCompletion", failed(), True),
        ("OnFailure", SUCCEEDED, True),
        ("OnFailure", failed(), False),
        ("Never", SUCCEEDED, True),
        ("Never", failed(), True),
    ],
    ids=lambda value: value if isinstance(value, str) else value["phase"] if isinstance(value, dict) else "",
)
def test_l5_l10_which_pods_and_services_stay_after_the_end(policy: str, end: dict[str, Any], kept: bool) -> None:
    world = World(paddle_job(ps=1, worker=1, cleanPodPolicy=policy)).up()
    world.all_pods(end)
    world.settle()
    assert (len(world.of("Pod")), len(world.of("Service"))) == ((2, 2) if kept else (0, 0))
    assert world.config_data is not None
    assert sum(world.status["worker"][state] for state in ("succeeded", "failed")) == 1


def test_pods_that_still_run_go_with_the_end_whatever_the_policy() -> None:
    world = World(paddle_job(ps=1, worker=1, cleanPodPolicy="Never")).up()
    world.pod("wd-worker-0", SUCCEEDED)
    world.settle()
    assert (world.phase, world.pods()) == ("Completed", ["wd-worker-0"])


def test_l11_a_deleted_job_is_let_go() -> None:
    job = paddle_job(worker=1)
    job["metadata"] |= {
        "finalizers": ["finalizers.paddlepaddle.org", "mine"],
        "deletionTimestamp": "2026-03-01T00:00:00Z",
    }
    world = World(job)
    assert world.step().actions == (PatchJob({"metadata": {"finalizers": ["mine"]}}),)
    assert world.settle() == 0


def test_l12_a_pod_that_is_taken_away_is_made_again() -> None:
    world = World(paddle_job(ps=1, worker=2, intranet="Service")).up()
    world.lose("wd-worker-1")
    made = world.step()
    assert [action.name for action in made.actions if isinstance(action, Create)] == ["wd-worker-1"]
    assert not any(isinstance(action, Delete) for action in made.actions)


def test_l13_after_the_end_nothing_is_made_again() -> None:
    world = World(paddle_job(worker=2, cleanPodPolicy="Never")).up()
    world.all_pods(SUCCEEDED)
    world.settle()
    world.lose("wd-worker-1")
    world.settle()
    assert world.pods() == ["wd-worker-0"]


def test_l14_volcano_lets_pods_in() -> None:
    world = World(paddle_job(worker=2), Settings(PodOptions(volcano=True)))
    world.settle()
    assert (len(world.of("PodGroup")), world.pods(), world.status["reason"]) == (1, [], "Queued")
    world.objects["PodGroup", "wd"]["status"] = {"phase": "Inqueue"}
    world.up()
    world.all_pods(SUCCEEDED)
    world.settle()
    assert (world.phase, world.of("PodGroup")) == ("Completed", [])


def test_l16_what_the_api_server_refuses_is_the_reason_to_wait() -> None:
    world = World(paddle_job(worker=2))
    world.refusals = ('pods "wd-worker-0" is forbidden: exceeded quota',)
    world.step()
    assert (world.status["reason"], world.status["message"]) == ("Refused", world.refusals[0])


def test_l17_a_pod_of_an_earlier_job_of_the_name_is_waited_for() -> None:
    world = World(paddle_job(worker=2))
    world.foreign = {("Pod", "wd-worker-0")}
    made = world.step()
    assert world.pods() == ["wd-worker-1"]
    assert made.requeue_after is not None
    assert world.status["message"] == "Pod wd-worker-0 belongs to somebody else. The job waits until it is gone."
    world.foreign = set()
    world.settle()
    assert world.pods() == ["wd-worker-0", "wd-worker-1"]


def test_a_foreign_config_map_is_not_shown_to_pods() -> None:
    world = World(paddle_job(worker=1))
    world.foreign = {("ConfigMap", "wd")}
    world.settle()
    assert world.pods() == []


def test_l18_a_crash_of_the_controller_duplicates_nothing() -> None:
    for done in range(9):
        world = World(paddle_job(ps=2, worker=2))
        made = world.plan()
        world.do(made.actions[:done])  # and crashes before it has written the status
        world.settle()
        assert len(world.of("Pod")) == len(world.of("Service")) == 4


def test_l19_blocks_of_host_ports_are_given_in_turn_and_again_when_they_are_free() -> None:
    ports = HostPorts()
    first = ports.next_block(set())
    second = ports.next_block({35020}, after=first)
    assert (first, second) == (35020, 35040)
    small = HostPorts(35000, 35060)
    assert small.next_block({35020, 35040}, after=35040) == 35000
    assert small.next_block({35000, 35020, 35040}) is None


def test_a_job_on_its_nodes_network_has_its_ports_before_it_has_pods() -> None:
    world = World(paddle_job(worker=1, intranet="Host"))
    world.block = None
    world.settle()
    assert (world.pods(), world.status["reason"]) == ([], "NoHostPorts")
    world.block = 35040
    world.up()
    assert world.job["metadata"]["annotations"] == {"host-port": "35040"}
    assert world.config_data is not None
    assert world.config_data["PADDLE_PORT"] == "35040"


# --- Suspended and resumed -------------------------------------------------------------------------------------------
def test_k2_a_suspended_job_has_nothing() -> None:
    world = World(paddle_job(worker=2, runPolicy={"suspend": True}))
    world.settle()
    assert world.objects == {}
    assert "startTime" not in world.status
    assert (world.phase, condition(world, "Suspended")) == ("Suspended", ("True", "Suspended"))


def test_k3_a_job_is_suspended_and_goes_on_later() -> None:
    world = World(paddle_job(worker=2)).up()
    started = world.status["startTime"]
    world.later(60)
    world.change({"spec": {"runPolicy": {"suspend": True}}})
    world.settle()
    assert world.objects == {}
    assert condition(world, "Running")[0] == "False"
    world.change({"spec": {"runPolicy": {"suspend": False}}})
    world.up()
    assert condition(world, "Suspended") == ("False", "Resumed")
    assert condition(world, "Running")[0] == "True"
    assert world.status["startTime"] > started


@pytest.mark.parametrize(
    ("annotation", "given"), [("38", 38), ("0", 0), ("soon", None), ("-1", None), ("9" * 5000, None)]
)
def test_pods_of_a_suspended_job_have_the_time_to_end_that_is_written_on_it(annotation: str, given: int | None) -> None:
    world = World(paddle_job(worker=1)).up()
    annotations = {"batch.paddlepaddle.org/grace": annotation}
    world.change({"metadata": {"annotations": annotations}, "spec": {"runPolicy": {"suspend": True}}})
    deleted = [action for _ in range(3) for action in world.step().actions if isinstance(action, Delete)]
    assert {action.grace for action in deleted if action.kind == "Pod"} == {given}
    assert {action.grace for action in deleted if action.kind != "Pod"} <= {None}


def test_a_resumed_job_waits_until_the_pods_of_before_are_gone() -> None:
    world = World(paddle_job(worker=2), slow=True).up()
    world.change({"spec": {"runPolicy": {"suspend": True}}})
    world.settle()
    world.change({"spec": {"runPolicy": {"suspend": False}}})
    world.settle()
    assert all(pod["metadata"].get("deletionTimestamp") for pod in world.of("Pod"))
    world.reap()
    world.up()
    assert world.phase == "Running"


@pytest.mark.parametrize("suspend", [True, False])
def test_k4_a_job_that_another_controller_manages_is_left_alone(suspend: bool) -> None:
    world = World(paddle_job(worker=2, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": suspend}))
    assert world.settle() == 0
    assert world.status == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"name": "9lives"}}, "cannot be part of a host's name"),
        ({"spec": {"worker": {"template": {"spec": {"containers": []}}}}}, "spec.worker.template has no container"),
        ({"spec": {"worker": {"template": {"spec": {"containers": [{"name": "a"}]}}}}}, "containers[0] has no image"),
        ({"spec": {"cleanPodPolicy": "Sometimes"}}, 'spec.cleanPodPolicy is "Sometimes". Write one of Always'),
        (
            {"spec": {"worker": {"requests": 3, "limits": 2}}},
            "spec.worker.requests (3) is more than spec.worker.limits (2)",
        ),
        ({"spec": {"failurePolicy": {"rules": [{"action": "Fail", "exitCodes": ["x"]}]}}}, 'exitCodes has "x"'),
        ({"spec": {"successPolicy": {"roles": ["ps"]}}}, 'names the role "ps", which the job does not have'),
        ({"spec": {"schedulingPolicy": {"minAvailable": 9}}}, "minAvailable (9) is more than the pods of the job (1)"),
    ],
    ids=["name", "no container", "no image", "policy", "bounds", "exit codes", "roles", "gang"],
)
def test_an_error_beyond_the_schema_is_a_message_and_can_be_corrected(change: dict[str, Any], message: str) -> None:
    world = World(paddle_job(worker=1))
    good = world.job
    world.change(change)
    world.settle()
    assert message in world.status["message"]
    assert (world.pods(), condition(world, "Valid")[0]) == ([], "False")
    world.job = {**good, "status": world.status}
    world.up()
    assert (world.phase, condition(world, "Valid")[0]) == ("Running", "True")


def test_an_edit_that_cannot_be_loses_nothing_of_a_running_job() -> None:
    world = World(paddle_job(worker=1)).up()
    world.change({"spec": {"worker": {"replicas": 0}}})
    world.settle()
    assert (world.pods(), world.phase) == (["wd-worker-0"], "Running")


def test_a_pod_that_is_being_deleted_does_not_count() -> None:
    world = World(paddle_job(worker=2)).up()
    job, observed, record = specification.read(world.job), world.observed(), Record.of(world.status)
    leaving = copy.deepcopy(observed.pods[0])
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    assert len(current_pods(job, observed, record)) == 2
    assert current_pods(job, replace(observed, pods=[leaving, observed.pods[1]]), record) == [observed.pods[1]]
