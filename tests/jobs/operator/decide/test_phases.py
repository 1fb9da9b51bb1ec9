"""The phase of a job by the states of its pods, by vectors P1 to P17."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.decide.plan import plan
from tests.jobs.operator.world import START, SUCCEEDED, World, failed, paddle_job, running

PENDING: dict[str, Any] = {"phase": "Pending"}
STARTING = {
    "phase": "Pending",
    "initContainerStatuses": [{"name": "coord-paddle", "ready": False, "state": {"running": {}}}],
}
UNREADY = running(ready=False)
STATES = {
    "pending": PENDING,
    "starting": STARTING,
    "running": running(),
    "succeeded": dict(SUCCEEDED),
    "failed": failed(),
}


def world_of(job: dict[str, Any], before: str = "", **pods: list[str]) -> World:
    """Return a job after one pass, with pods in these states; ``before`` is the phase so far."""
    world = World(job)
    world.settle()
    for role, states in pods.items():
        for index, state in enumerate(states):
            world.pod(f"wd-{role}-{index}", STATES[state])
    if before:
        world.job["status"]["phase"] = before
    made = world.plan()
    world.job["status"] = made.status or world.status
    return world


WORKERS, BOTH = paddle_job(worker=2), paddle_job(ps=1, worker=2)


@pytest.mark.parametrize(
    ("job", "before", "pods", "phase"),
    [
        pytest.param(WORKERS, "", {"worker": ["pending", "pending"]}, "Pending", id="P2"),
        pytest.param(WORKERS, "", {"worker": ["starting", "running"]}, "Starting", id="P3"),
        pytest.param(WORKERS, "", {"worker": ["running", "running"]}, "Running", id="P4"),
        pytest.param(WORKERS, "Running", {"worker": ["running", "succeeded"]}, "Running", id="P5"),
        pytest.param(WORKERS, "Running", {"worker": ["succeeded", "succeeded"]}, "Completed", id="P6"),
        pytest.param(BOTH, "Running", {"ps": ["running"], "worker": ["succeeded", "succeeded"]}, "Completed", id="P7"),
        pytest.param(WORKERS, "Running", {"worker": ["running", "failed"]}, "Failed", id="P8"),
        pytest.param(WORKERS, "Failed", {"worker": ["running", "running"]}, "Failed", id="P9 failed"),
        pytest.param(WORKERS, "Completed", {"worker": ["running", "failed"]}, "Completed", id="P9 completed"),
        pytest.param(BOTH, "", {"ps": ["pending"], "worker": ["failed", "running"]}, "Failed", id="P11"),
    ],
)
def test_the_phase_follows_from_the_pods(
    job: dict[str, Any], before: str, pods: dict[str, list[str]], phase: str
) -> None:
    assert world_of(job, before, **pods).phase == phase


def test_p1_a_new_job_is_pending() -> None:
    world = World(WORKERS)
    world.step()
    assert world.phase == "Pending"


def test_p10_a_job_that_is_being_deleted_is_terminating() -> None:
    world = world_of(WORKERS, worker=["succeeded", "succeeded"])
    world.job["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    world.step()
    assert world.phase == "Terminating"


def test_p12_a_job_without_roles_is_refused_with_a_message() -> None:
    world = World(paddle_job())
    world.step()
    assert (world.phase, world.status["reason"]) == ("Pending", "InvalidSpec")
    assert world.status["message"] == "The job has no role. Write spec.worker, and spec.ps for parameter servers."


def test_p13_a_role_without_replicas_is_refused_with_a_message() -> None:
    world = World(paddle_job(worker=0))
    world.step()
    assert world.status["message"] == "spec.worker.replicas is 0. Write 1 or more, or leave spec.worker out."
    assert world.pods() == []


@pytest.mark.parametrize(
    ("pod", "counted"),
    [
        pytest.param(STARTING, "starting", id="P14 coordinating"),
        pytest.param(PENDING, "pending", id="P14 not coordinating"),
        pytest.param(UNREADY, "starting", id="P15"),
        pytest.param({"phase": "Unknown"}, "unknown", id="P16"),
    ],
)
def test_a_pod_counts_as(pod: dict[str, Any], counted: str) -> None:
    world = World(paddle_job(worker=1))
    world.settle()
    world.pod("wd-worker-0", pod)
    world.step()
    status = world.status["worker"]
    counts = {key: status[key] for key in ("pending", "starting", "running", "failed", "succeeded", "unknown")}
    assert counts == {**dict.fromkeys(counts, 0), counted: 1}
    assert [ref["name"] for ref in status["refs"]] == ["wd-worker-0"]


def test_p16_a_pod_of_a_node_that_is_silent_changes_nothing() -> None:
    world = World(WORKERS).up()
    world.pod("wd-worker-0", {"phase": "Unknown"})
    world.settle()
    assert world.phase == "Running"


def test_p17_times_are_set_when_it_happens_and_never_again() -> None:
    world = World(WORKERS).up()
    assert world.status["startTime"] == "2026-03-01T00:00:00Z"
    world.later(60)
    world.all_pods(SUCCEEDED)
    world.settle()
    world.later(60)
    world.settle()
    assert (world.status["startTime"], world.status["completionTime"]) == (
        "2026-03-01T00:00:00Z",
        "2026-03-01T00:01:00Z",
    )


def test_the_observed_generation_is_reported() -> None:
    world = World(WORKERS).up()
    world.change({"spec": {"cleanPodPolicy": "Never"}})
    world.settle()
    assert world.status["observedGeneration"] == 2


def test_the_same_pods_give_the_same_plan_in_any_order() -> None:
    world = World(BOTH).up()
    world.pod("wd-worker-1", failed())
    there = world.observed()
    turned = replace(there, pods=list(reversed(there.pods)), services=list(reversed(there.services)))
    first, second = (plan(world.job, observed, START) for observed in (there, turned))
    assert first.status == second.status
    assert set(map(str, first.actions)) == set(map(str, second.actions))
