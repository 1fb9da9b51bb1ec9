"""A job that says itself how many pods each of its places may have had: ``spec.starts``."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.operator.model import names
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, running


def world(starts: dict[str, int] | None = None, **spec: Any) -> World:
    return World(paddle_job(master=1, worker=2, starts=starts or {}, **spec)).up()


def starts(world: World) -> dict[str, str]:
    return {names.name_of(pod): pod["metadata"]["labels"][names.START_NUMBER_LABEL] for pod in world.of("Pod")}


def test_the_first_pod_of_each_place_is_its_first_start() -> None:
    assert starts(world()) == {"wd-master-0": "1", "wd-worker-0": "1", "wd-worker-1": "1"}


@pytest.mark.invariant("A pod that failed or disappeared stays away until its PaddleJob allows another one.")
@pytest.mark.parametrize("state", [failed(1), failed(137), failed(1, "Evicted")])
def test_a_pod_that_failed_stays_as_it_ended_and_the_job_goes_on(state: dict[str, Any]) -> None:
    around = world()
    before = around.of("Pod")
    around.pod("wd-worker-1", state)
    around.settle()
    assert [names.uid_of(pod) for pod in around.of("Pod")] == [names.uid_of(pod) for pod in before]
    assert around.phase not in ("Failed", "Completed")


@pytest.mark.invariant("A pod that failed or disappeared stays away until its PaddleJob allows another one.")
def test_a_pod_that_went_stays_away() -> None:
    around = world()
    around.lose("wd-worker-1")
    around.settle()
    assert around.pods() == ["wd-master-0", "wd-worker-0"]


@pytest.mark.invariant("A pod that failed or disappeared stays away until its PaddleJob allows another one.")
def test_a_raised_start_number_makes_another_pod() -> None:
    around = world()
    around.pod("wd-worker-0", failed(137))
    around.lose("wd-worker-1")
    around.settle()
    around.change({"spec": {"starts": {"worker-0": 2, "worker-1": 2}}})
    around.settle()
    assert starts(around) == {"wd-master-0": "1", "wd-worker-0": "2", "wd-worker-1": "2"}
    assert around.pods() == ["wd-master-0", "wd-worker-0", "wd-worker-1"]


def test_a_pod_that_still_runs_keeps_its_place() -> None:
    around = world()
    before = around.of("Pod")
    around.change({"spec": {"starts": {"worker-0": 2}}})
    around.settle()
    assert around.of("Pod") == before


def test_a_pod_made_before_a_crash_of_the_controller_is_counted_later() -> None:
    around = world()
    around.lose("wd-worker-1")
    around.change({"spec": {"starts": {"worker-1": 2}}})
    around.do(around.plan().actions)  # and its status is not written
    assert starts(around)["wd-worker-1"] == "2"
    around.settle()
    around.lose("wd-worker-1")
    around.settle()
    assert "wd-worker-1" not in around.pods()


def test_observed_starts_are_written_before_any_action() -> None:
    around = World(paddle_job(master=1, worker=2, starts={}))
    around.do(around.plan().actions)
    made = around.plan()
    assert made.status_first
    assert made.status is not None
    assert made.status["starts"] == {"master-0": 1, "worker-0": 1, "worker-1": 1}


def test_a_job_that_is_scaled_down_and_up_starts_nobody_by_itself() -> None:
    around = world()
    around.change({"spec": {"worker": {"replicas": 1}}})
    around.settle()
    around.change({"spec": {"worker": {"replicas": 3}}})
    around.settle()
    assert around.pods() == ["wd-master-0", "wd-worker-0", "wd-worker-2"]
    around.change({"spec": {"starts": {"worker-1": 2}}})
    around.settle()
    assert starts(around)["wd-worker-1"] == "2"


def test_pods_that_find_no_node_are_waited_for() -> None:
    around = World(paddle_job(master=1, worker=2, starts={}))
    around.settle()
    around.pod("wd-master-0", running())
    around.settle()
    around.later(10_000)
    around.settle()
    assert around.status["attempt"] == 1


def test_the_job_is_completed_when_all_workers_have_succeeded() -> None:
    around = world(cleanPodPolicy="Never")
    around.all_pods(dict(SUCCEEDED), only="worker")
    around.settle()
    assert around.phase == "Completed"
    assert around.pods() == ["wd-worker-0", "wd-worker-1"]


def completed() -> World:
    around = world(cleanPodPolicy="Never")
    around.all_pods(dict(SUCCEEDED), only="worker")
    around.settle()
    assert around.phase == "Completed"
    return around


@pytest.mark.invariant("A worker of a completed PaddleJob can run again if the PaddleJob allows another pod.")
def test_a_worker_of_a_completed_job_may_begin_again() -> None:
    around = completed()
    around.change({"spec": {"starts": {"worker-1": 2}}})
    around.settle()
    assert starts(around)["wd-worker-1"] == "2"
    assert (around.phase, around.status.get("completionTime")) == ("Pending", None)
    around.pod("wd-worker-1", dict(SUCCEEDED))
    around.settle()
    assert around.phase == "Completed"


def test_a_master_of_a_completed_job_does_not_begin_again() -> None:
    around = completed()
    before = around.status
    around.change({"spec": {"starts": {"master-0": 2}}})
    around.settle()
    assert {**around.status, "observedGeneration": 0} == {**before, "observedGeneration": 0}
    assert around.pods() == ["wd-worker-0", "wd-worker-1"]


def test_nobody_of_a_completed_job_begins_again_once_it_is_stopped() -> None:
    around = completed()
    around.change({"spec": {"starts": {"worker-1": 2}, "runPolicy": {"suspend": True}}})
    around.settle()
    assert around.phase == "Completed"


def test_a_worker_that_is_to_begin_again_is_waited_for() -> None:
    around = world(cleanPodPolicy="Never")
    around.change({"spec": {"starts": {"worker-1": 2}}})
    around.all_pods(dict(SUCCEEDED), only="worker")
    around.settle()
    assert around.phase == "Pending"
    assert starts(around)["wd-worker-1"] == "2"


def test_after_a_suspension_all_pods_restart() -> None:
    around = world()
    around.change({"spec": {"runPolicy": {"suspend": True}}})
    around.settle()
    around.change({"spec": {"runPolicy": {"suspend": False}}})
    around.settle()
    assert starts(around) == {"wd-master-0": "1", "wd-worker-0": "1", "wd-worker-1": "1"}


def test_pods_without_a_master_are_not_restarted_together_either() -> None:
    around = World(paddle_job(worker=2, starts={})).up()
    around.lose("wd-worker-1")
    around.settle()
    assert (around.pods(), around.status["attempt"]) == (["wd-worker-0"], 1)
