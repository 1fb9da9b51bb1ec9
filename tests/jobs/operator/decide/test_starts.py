"""Jobs whose creator sets how many pods each place may have had: ``spec.starts``."""

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
    cluster = world()
    before = cluster.of("Pod")
    cluster.pod("wd-worker-1", state)
    cluster.settle()
    assert [names.uid_of(pod) for pod in cluster.of("Pod")] == [names.uid_of(pod) for pod in before]
    assert cluster.phase not in ("Failed", "Completed")


@pytest.mark.invariant("A pod that failed or disappeared stays away until its PaddleJob allows another one.")
def test_a_pod_that_went_stays_away() -> None:
    cluster = world()
    cluster.lose("wd-worker-1")
    cluster.settle()
    assert cluster.pods() == ["wd-master-0", "wd-worker-0"]


@pytest.mark.invariant("A pod that failed or disappeared stays away until its PaddleJob allows another one.")
def test_a_raised_start_number_makes_another_pod() -> None:
    cluster = world()
    cluster.pod("wd-worker-0", failed(137))
    cluster.lose("wd-worker-1")
    cluster.settle()
    cluster.change({"spec": {"starts": {"worker-0": 2, "worker-1": 2}}})
    cluster.settle()
    assert starts(cluster) == {"wd-master-0": "1", "wd-worker-0": "2", "wd-worker-1": "2"}
    assert cluster.pods() == ["wd-master-0", "wd-worker-0", "wd-worker-1"]


def test_a_pod_that_still_runs_keeps_its_place() -> None:
    cluster = world()
    before = cluster.of("Pod")
    cluster.change({"spec": {"starts": {"worker-0": 2}}})
    cluster.settle()
    assert cluster.of("Pod") == before


def test_a_pod_made_before_a_crash_of_the_controller_is_counted_later() -> None:
    cluster = world()
    cluster.lose("wd-worker-1")
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    cluster.do(cluster.plan().actions)  # and its status is not written
    assert starts(cluster)["wd-worker-1"] == "2"
    cluster.settle()
    cluster.lose("wd-worker-1")
    cluster.settle()
    assert "wd-worker-1" not in cluster.pods()


def test_observed_starts_are_written_before_any_action() -> None:
    cluster = World(paddle_job(master=1, worker=2, starts={}))
    cluster.do(cluster.plan().actions)
    made = cluster.plan()
    assert made.status_first
    assert made.status is not None
    assert made.status["starts"] == {"master-0": 1, "worker-0": 1, "worker-1": 1}


def test_a_job_that_is_scaled_down_and_up_starts_nobody_by_itself() -> None:
    cluster = world()
    cluster.change({"spec": {"worker": {"replicas": 1}}})
    cluster.settle()
    cluster.change({"spec": {"worker": {"replicas": 3}}})
    cluster.settle()
    assert cluster.pods() == ["wd-master-0", "wd-worker-0", "wd-worker-2"]
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    cluster.settle()
    assert starts(cluster)["wd-worker-1"] == "2"


def test_pods_that_find_no_node_are_waited_for() -> None:
    cluster = World(paddle_job(master=1, worker=2, starts={}))
    cluster.settle()
    cluster.pod("wd-master-0", running())
    cluster.settle()
    cluster.later(10_000)
    cluster.settle()
    assert cluster.status["attempt"] == 1


def test_the_job_is_completed_when_all_workers_have_succeeded() -> None:
    cluster = world(cleanPodPolicy="Never")
    cluster.all_pods(dict(SUCCEEDED), only="worker")
    cluster.settle()
    assert cluster.phase == "Completed"
    assert cluster.pods() == ["wd-worker-0", "wd-worker-1"]


def completed() -> World:
    cluster = world(cleanPodPolicy="Never")
    cluster.all_pods(dict(SUCCEEDED), only="worker")
    cluster.settle()
    assert cluster.phase == "Completed"
    return cluster


@pytest.mark.invariant("A worker of a completed PaddleJob can run again if the PaddleJob allows another pod.")
def test_a_worker_of_a_completed_job_may_begin_again() -> None:
    cluster = completed()
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    cluster.settle()
    assert starts(cluster)["wd-worker-1"] == "2"
    assert (cluster.phase, cluster.status.get("completionTime")) == ("Pending", None)
    cluster.pod("wd-worker-1", dict(SUCCEEDED))
    cluster.settle()
    assert cluster.phase == "Completed"


def test_a_master_of_a_completed_job_does_not_begin_again() -> None:
    cluster = completed()
    before = cluster.status
    cluster.change({"spec": {"starts": {"master-0": 2}}})
    cluster.settle()
    assert {**cluster.status, "observedGeneration": 0} == {**before, "observedGeneration": 0}
    assert cluster.pods() == ["wd-worker-0", "wd-worker-1"]


def test_nobody_of_a_completed_job_begins_again_once_it_is_stopped() -> None:
    cluster = completed()
    cluster.change({"spec": {"starts": {"worker-1": 2}, "runPolicy": {"suspend": True}}})
    cluster.settle()
    assert cluster.phase == "Completed"


def test_a_worker_that_is_to_begin_again_is_waited_for() -> None:
    cluster = world(cleanPodPolicy="Never")
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    cluster.all_pods(dict(SUCCEEDED), only="worker")
    cluster.settle()
    assert cluster.phase == "Pending"
    assert starts(cluster)["wd-worker-1"] == "2"


def test_after_a_suspension_all_pods_restart() -> None:
    cluster = world()
    cluster.change({"spec": {"runPolicy": {"suspend": True}}})
    cluster.settle()
    cluster.change({"spec": {"runPolicy": {"suspend": False}}})
    cluster.settle()
    assert starts(cluster) == {"wd-master-0": "1", "wd-worker-0": "1", "wd-worker-1": "1"}


def test_pods_without_a_master_are_not_restarted_together_either() -> None:
    cluster = World(paddle_job(worker=2, starts={})).up()
    cluster.lose("wd-worker-1")
    cluster.settle()
    assert (cluster.pods(), cluster.status["attempt"]) == (["wd-worker-0"], 1)
