"""Least attained service, by examples small enough to compute by hand."""

from __future__ import annotations

from jobs.elastic.baselines.tiresias import THRESHOLD, tiresias
from jobs.elastic.policy.model import NOTHING, Amounts, Cluster, Core, Job, Node, Service

GPU = Amounts(1000, 100, 1)
FOUR = [Node("n0", Amounts(8000, 64_000, 4))]


def job(key: str, replicas: int, at: float = 0.0, had: float = 0.0, **more: object) -> Job:
    return Job(key, 1, 8, GPU, submitted=at, first=replicas, attained=had, **more)  # type: ignore[arg-type]


def running(key: str, replicas: int, at: float = 0.0, had: float = 0.0) -> Job:
    return job(key, replicas, at, had, started=at, trainers={"n0": replicas}, running=replicas)


def test_the_first_job_runs_with_the_trainers_that_it_was_submitted_with() -> None:
    decision = tiresias(Cluster(FOUR, [job("late", 3, at=2.0), job("early", 2, at=1.0)]), 10.0)
    assert decision.targets == {"late": 0, "early": 2}
    assert len(decision.launches["early"].trainers) == 2


def test_a_smaller_one_that_fits_goes_past_one_that_does_not() -> None:
    jobs = [job("first", 3, at=0.0), job("second", 2, at=1.0), job("third", 1, at=2.0)]
    assert tiresias(Cluster(FOUR, jobs), 10.0).targets == {"first": 3, "second": 0, "third": 1}


def test_a_job_above_the_threshold_is_preempted_for_one_below_it() -> None:
    jobs = [running("old", 4, had=THRESHOLD), job("young", 2, at=5.0)]
    decision = tiresias(Cluster(FOUR, jobs), 10.0)
    assert decision.preempted == {"old": ""}
    assert set(decision.launches) == {"young"}


def test_within_a_queue_no_job_is_preempted_for_a_later_one() -> None:
    jobs = [running("old", 4, had=THRESHOLD - 1), job("young", 2, at=5.0)]
    decision = tiresias(Cluster(FOUR, jobs), 10.0)
    assert (decision.preempted, decision.launches) == ({}, {})


def test_servers_and_services_take_capacity_too() -> None:
    with_server = job("a", 2, core=Core(NOTHING, Amounts(0, 0, 1), 1))
    service = Service("web", GPU, 2)
    assert tiresias(Cluster(FOUR, [with_server]), 0.0).targets == {"a": 2}
    assert tiresias(Cluster(FOUR, [with_server], [service]), 0.0).targets == {"a": 0}
