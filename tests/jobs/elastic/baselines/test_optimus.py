"""Trainers by marginal gain, by examples small enough to compute by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobs.elastic.baselines.optimus import fitted, optimus
from jobs.elastic.policy.model import Amounts, Cluster, Job, Node

GPU = Amounts(1000, 100, 1)
FOUR = [Node("n0", Amounts(8000, 64_000, 4))]
LINEAR, NO_USE = {1: 1.0, 2: 2.0}, {1: 1.0, 2: 1.0}


def job(key: str, left: float | None, speeds: Mapping[int, float] = LINEAR, **more: object) -> Job:
    return Job(key, 1, 8, GPU, remaining=left, speeds=speeds, **more)  # type: ignore[arg-type]


def test_all_jobs_have_their_least_before_any_has_more() -> None:
    assert optimus(Cluster(FOUR, [job(key, 10.0) for key in "abcd"]), 0.0).targets == dict.fromkeys("abcd", 1)


def test_the_job_whose_time_is_shortened_most_gets_the_next() -> None:
    """With 100 s left, a second trainer saves 50 s and a third 16.7 s. With 40 s left, a second saves 20 s."""
    assert optimus(Cluster(FOUR, [job("long", 100.0), job("short", 40.0)]), 0.0).targets == {"long": 2, "short": 2}
    assert optimus(Cluster(FOUR, [job("long", 100.0), job("short", 30.0)]), 0.0).targets == {"long": 3, "short": 1}


def test_no_job_gets_trainers_that_do_not_speed_it_up() -> None:
    jobs = [job("stuck", 1000.0, NO_USE), job("other", 1.0)]
    assert optimus(Cluster(FOUR, jobs), 0.0).targets == {"stuck": 1, "other": 3}


def test_a_job_of_unknown_remaining_work_counts_as_an_average_one() -> None:
    assert optimus(Cluster(FOUR, [job("a", None), job("b", 50.0)]), 0.0).targets == {"a": 2, "b": 2}


def test_running_jobs_grow_shrink_and_stop() -> None:
    there = {"started": 0.0, "submitted": 0.0}
    grows = job("grows", 100.0, trainers={"n0": 1}, **there)
    shrinks = job("shrinks", 1.0, NO_USE, trainers={"n0": 2}, **there)
    stops = Job("stops", 4, 4, GPU, submitted=1.0, started=1.0, trainers={"n0": 4})
    decision = optimus(Cluster(FOUR, [grows, shrinks, stops]), 0.0)
    assert decision.grants == {"grows": {"": 2}}
    assert decision.victims == {"shrinks": {"": 1}}
    assert decision.preempted == {"stops": ""}


@pytest.mark.parametrize("law", [(1.0, 0.0), (1.0, 0.25), (0.5, 2.0)])
def test_the_law_that_made_the_speeds_is_found(law: tuple[float, float]) -> None:
    once, more = law
    assert fitted({n: n / (once + more * (n - 1)) for n in (1, 2, 4, 8)}) == pytest.approx(law)


def test_no_coefficient_is_negative() -> None:
    assert fitted({1: 1.0, 2: 4.0}) == (0.75, 0.0), "faster than in proportion: as if in proportion"
    once, more = fitted({2: 2.0, 3: 1.0})
    assert once > 0
    assert more == pytest.approx(1.4)
    assert fitted({}) == (1.0, 0.0)
