"""The observed state of an attempt, from its PaddleJob and its pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.backends.base import ControlAddress, ControlMissing, Phase, ReplicaView
from jobs.backends.kubernetes import observe
from jobs.backends.kubernetes.observe import container, view
from jobs.messages import cluster as messages


def job(**fields: Any) -> dict[str, Any]:
    """Return a PaddleJob with a master, a parameter server and two trainers; ``starts``: their starts so far."""
    made = fields.pop("starts", {"master-0": 1, "ps-0": 1, "worker-0": 1, "worker-1": 1})
    spec = {"master": {"replicas": 1}, "ps": {"replicas": 1}, "worker": {"replicas": 2}, "starts": {}}
    return {
        "metadata": {"name": "a"},
        "spec": {**spec, **fields.pop("spec", {})},
        "status": {"starts": made, **fields.pop("status", {})},
    }


def pod(place: str = "worker-0", start_number: int = 1, **status: Any) -> dict[str, Any]:
    labels = {"batch.paddlepaddle.org/start-number": str(start_number)}
    return {"metadata": {"name": f"a-{place}", "labels": labels}, "status": {"phase": "Running", **status}}


def ended(code: int, message: str = "", reason: str = "Error", **status: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"state": state}], **status}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"state": state}]}


def agent_report(**facts: Any) -> str:
    return json.dumps({"start_number": 1, "code": None, "signal": None, "out_of_memory": False, "why": "", **facts})


def observed(made: dict[str, Any], *pods: dict[str, Any], name: str = "trainer-0") -> ReplicaView:
    return next(one for one in view(made, pods).replicas if one.name == name)


# --- Replicas --------------------------------------------------------------------------------------------------------
def test_all_desired_replicas_are_reported_in_the_order_of_roles() -> None:
    assert [one.name for one in view(job(starts={}), []).replicas] == [
        "master-0",
        "pserver-0",
        "trainer-0",
        "trainer-1",
    ]


def test_a_pod_that_is_not_made_yet_is_starting() -> None:
    assert observed(job(starts={})) == ReplicaView("trainer-0", Phase.STARTING)


def test_a_running_pod_is_observed_with_its_start_number() -> None:
    assert observed(job(starts={"worker-0": 2}), pod(start_number=2)) == ReplicaView(
        "trainer-0", Phase.RUNNING, start_number=2
    )


def test_a_pod_that_leaves_runs_until_it_is_gone() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    assert observed(job(spec={"worker": {"replicas": 0}}), leaving).phase is Phase.RUNNING


# --- Ends ------------------------------------------------------------------------------------------------------------
def test_the_report_of_the_agent_decides_how_a_replica_ended() -> None:
    finished = pod(**ended(3, agent_report(code=3, why="exited with code 3: KeyError: 'x'")))
    assert observed(job(), finished) == ReplicaView(
        "trainer-0", Phase.EXITED, 3, why="exited with code 3: KeyError: 'x'"
    )


def test_a_success_is_one() -> None:
    assert observed(job(), pod(**ended(0, agent_report(code=0)))) == ReplicaView("trainer-0", Phase.EXITED, 0)


def test_an_out_of_memory_kill_by_the_node_is_reported() -> None:
    one = observed(job(), pod(**ended(137, reason="OOMKilled")))
    assert (one.phase, one.signal, one.out_of_memory) == (Phase.EXITED, 9, True)


def test_a_killed_container_is_observed_with_its_signal() -> None:
    assert observed(job(), pod(**ended(137))).signal == 9


def test_an_agent_that_could_not_start_is_reported_with_its_last_line() -> None:
    traceback = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'runtime'\n"
    assert observed(job(), pod(**ended(1, traceback))).why == (
        "ended: its agent did not start: ModuleNotFoundError: No module named 'runtime'"
    )


@pytest.mark.parametrize("message", ["{}", "[1]", "null", '"text"', "{", "[" * 4096])
def test_a_forged_report_of_user_code_is_not_an_agents(message: str) -> None:
    assert observed(job(), pod(**ended(1, message))).code == 1


def test_what_the_node_did_to_it_is_nobodys_failure() -> None:
    one = observed(job(), pod(phase="Failed", reason="Evicted", message="The node was low on memory."))
    assert (one.phase, one.why) == (
        Phase.LOST,
        messages.ENDED_BY_NODE(reason="Evicted", why="The node was low on memory."),
    )


def test_a_pod_that_somebody_deleted_was_killed() -> None:
    assert observed(job()) == ReplicaView("trainer-0", Phase.EXITED, signal=9, why=messages.POD_DELETED())


def test_a_trainer_that_is_to_begin_again_is_starting_also_where_all_had_succeeded() -> None:
    made = job(spec={"starts": {"worker-0": 2}}, status={"phase": "Completed"})
    assert observed(made) == ReplicaView("trainer-0", Phase.STARTING, start_number=2)


@pytest.mark.parametrize(
    "made",
    [
        job(spec={"runPolicy": {"suspend": True}}),
        job(spec={"worker": {"replicas": 0}}),
        job(status={"phase": "Completed"}),
    ],
)
def test_a_removed_pod_is_observed_as_asked_to_stop(made: dict[str, Any]) -> None:
    assert observed(made) == ReplicaView("trainer-0", Phase.EXITED, signal=15, why=messages.STOPPED())


def test_a_replica_stopped_before_its_pod_has_ended() -> None:
    one = observed(job(starts={}, spec={"runPolicy": {"suspend": True}}))
    assert (one.phase, one.why) == (Phase.EXITED, messages.STOPPED_BEFORE_START())


# --- Restarts --------------------------------------------------------------------------------------------------------
def test_another_start_is_observed_from_the_moment_it_is_requested() -> None:
    desired = job(spec={"starts": {"worker-0": 2}})
    assert observed(desired, pod(**ended(137))) == ReplicaView("trainer-0", Phase.STARTING, start_number=2)
    assert observed(desired) == ReplicaView("trainer-0", Phase.STARTING, start_number=2)


def test_a_removed_replica_stays_removed_when_its_place_is_back() -> None:
    assert observed(job()).phase is Phase.EXITED


# --- Pods that do not start -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "why"),
    [
        (waiting("ErrImagePull", "manifest unknown"), messages.IMAGE_NOT_PULLED(why="manifest unknown")),
        (waiting("ImagePullBackOff", "Back-off pulling"), messages.IMAGE_NOT_PULLED(why="Back-off pulling")),
        (waiting("InvalidImageName"), messages.IMAGE_NAME_INVALID(why="InvalidImageName")),
        (waiting("CreateContainerConfigError", "no secret"), messages.CONTAINER_NOT_CREATED(why="no secret")),
        (
            waiting("CreateContainerConfigError", 'configmap "theirs" not found'),
            messages.CONTAINER_NOT_CREATED(why='configmap "theirs" not found'),
        ),
        # Pods wait for each other by the ConfigMap of their job, which has the name of the job.
        (waiting("CreateContainerConfigError", 'configmap "a" not found'), ""),
        (waiting("ContainerCreating"), ""),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}],
            },
            messages.UNSCHEDULABLE(why="0/1 nodes are available"),
        ),
    ],
)
def test_the_reason_why_a_pod_does_not_start_is_reported(status: dict[str, Any], why: str) -> None:
    assert observed(job(), pod(**status)) == ReplicaView("trainer-0", Phase.STARTING, why=why)


@pytest.mark.parametrize("reason", ["Refused", "InvalidSpec", "NameTaken"])
def test_a_refusal_by_the_api_server_is_reported(reason: str) -> None:
    refused = job(starts={}, status={"reason": reason, "message": "exceeded quota: cpu"})
    assert observed(refused).why == messages.POD_REJECTED(why="exceeded quota: cpu")


# --- Without an agent ------------------------------------------------------------------------------------------------
def bare(**fields: Any) -> dict[str, Any]:
    made = job(**fields)
    return {**made, "metadata": {**made["metadata"], "labels": {"regatta/bare": "true"}}}


def test_a_replica_without_an_agent_is_observed_as_such() -> None:
    assert not observed(bare(), pod()).agent
    assert observed(job(), pod()).agent


def test_without_an_agent_the_exit_code_decides() -> None:
    found = observed(bare(), pod(**ended(3, agent_report(code=0, why="forged"))))
    assert (found.phase, found.code, found.why) == (Phase.EXITED, 3, "")


def test_without_an_agent_a_program_that_did_not_start_is_reported() -> None:
    found = observed(
        bare(), pod(**ended(128, 'exec: "no-such": executable file not found in $PATH', reason="StartError"))
    )
    assert found.why == 'could not be started: exec: "no-such": executable file not found in $PATH'


def test_an_out_of_memory_kill_is_reported_without_an_agent_too() -> None:
    found = observed(bare(), pod(**ended(137, reason="OOMKilled")))
    assert (found.out_of_memory, found.signal) == (True, 9)


@pytest.mark.parametrize(
    ("status", "begun", "over"),
    [
        ({"phase": "Pending"}, False, False),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {}}}]}, False, False),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, True, False),
        ({"phase": "Running", "containerStatuses": [{"state": {"terminated": {}}}]}, True, True),
        ({"phase": "Failed", "reason": "Evicted"}, True, True),
    ],
)
def test_what_there_is_to_read_of_a_container(status: dict[str, Any], begun: bool, over: bool) -> None:
    found = container({"metadata": {"name": "pod", "uid": "uid-1"}, "status": status})
    assert (found.pod, found.begun, found.ended) == ("uid-1", begun, over)


# --- Starts of the cluster -------------------------------------------------------------------------------------------
def granted(**fields: Any) -> dict[str, Any]:
    return job(spec={"maxStarts": {"worker-0": 3}}, status={"grantedStarts": {"worker-0": 2}, **fields})


def test_a_granted_start_is_starting_before_its_pod_is_there() -> None:
    assert observed(granted()) == ReplicaView("trainer-0", Phase.STARTING, start_number=2, granted=3)


def test_a_granted_start_is_starting_while_the_evicted_pod_is_still_there() -> None:
    evicted = pod(**ended(1, reason="Error"), reason="Evicted")
    assert observed(granted(), evicted) == ReplicaView("trainer-0", Phase.STARTING, start_number=2, granted=3)


def test_a_pod_of_a_granted_start_is_observed_with_its_number() -> None:
    seen = observed(granted(), pod(start_number=2))
    assert (seen.phase, seen.start_number) == (Phase.RUNNING, 2)


def test_the_limit_of_a_replica_without_a_grant_is_0_and_of_a_job_without_the_field_unknown() -> None:
    assert observed(granted(), name="trainer-1").granted == 0
    assert observed(job(), pod()).granted is None


# --- Control channel -------------------------------------------------------------------------------------------------
def listening(*ports: dict[str, Any], **status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "replica", "ports": list(ports)}]}
    return {"spec": spec, "status": {"phase": "Running", "podIP": "10.1.2.3", **status}}


CONTROL = {"name": "control", "containerPort": 7071}


def test_a_running_pod_has_its_control_address() -> None:
    found = observe.control_address(listening({"name": "http", "containerPort": 80}, CONTROL))
    assert found == ControlAddress(host="10.1.2.3", port=7071)


@pytest.mark.parametrize("status", [{"phase": "Pending"}, {"phase": "Failed"}, {"podIP": ""}])
def test_a_pod_that_does_not_run_has_no_control_address(status: dict[str, str]) -> None:
    assert observe.control_address(listening(CONTROL, **status)) is None


def test_a_pod_of_a_release_without_the_channel_is_reported_as_such() -> None:
    with pytest.raises(ControlMissing):
        observe.control_address(listening())
