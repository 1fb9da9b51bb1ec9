"""Iterations of a job: in order, each once, across outages of the portal."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta import Job
from regatta.errors import Missing
from regatta.models import Point
from regatta.watching.iterations import Reports, polls
from tests.client.portal import Answer, client, job, ok, problem

JOB, POINTS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/metrics/points"
AWAY = httpx.ConnectError("refused")
TRIES = 6  # of one request


def point(seq: int, step: int, key: str = "cost", replica: str = "trainer-0") -> dict[str, Any]:
    value = float(seq)
    return {"seq": seq, "time": 0.0, "attempt": 1, "replica": replica, "step": step, "key": key, "value": value}


def page(*points: dict[str, Any], last: int = 0, more: bool = False) -> Answer:
    return ok({"points": list(points), "last": points[-1]["seq"] if points else last, "more": more})


def followed(states: list[Answer], pages: list[Answer]) -> tuple[list[tuple[float, dict[str, float]]], Any, list[str]]:
    """Return the steps and metrics that arrive, the requests for points, and the problems that were reported."""
    portal, paper, _ = client({JOB: states, POINTS: pages})
    running = Job.from_json(job_body(), portal.jobs)
    found, said = [], []
    for poll in polls(running):
        found += [(each.step, dict(each.metrics)) for each in poll.iterations]
        said += [poll.problem] if poll.problem else []
    return found, [each.url.params["after"] for each in paper.asked if each.url.path.endswith("points")], said


def job_body() -> dict[str, Any]:
    return dict(job())


def test_iterations_come_in_order_and_once() -> None:
    found, cursors, _ = followed([ok(job()), ok(job("SUCCEEDED"))], [page(point(1, 1), point(2, 2)), page(point(3, 3))])
    assert [step for step, _ in found] == [1, 2, 3]
    assert cursors == ["0", "2"]


def test_the_metrics_of_one_report_are_one_iteration_also_across_pages() -> None:
    pages = [page(point(1, 1), more=True), page(point(2, 1, "accuracy"), point(3, 2))]
    found, _, _ = followed([ok(job("SUCCEEDED"))], pages)
    assert found == [(1, {"cost": 1.0, "accuracy": 2.0}), (2, {"cost": 3.0})]


def test_two_reports_of_the_same_step_are_two_iterations() -> None:
    found, _, _ = followed([ok(job("SUCCEEDED"))], [page(point(1, 1), point(2, 1))])
    assert [metrics["cost"] for _, metrics in found] == [1.0, 2.0]


def test_points_of_servers_are_left_out() -> None:
    found, _, _ = followed([ok(job("SUCCEEDED"))], [page(point(1, 1, replica="pserver-0"), point(2, 1))])
    assert found == [(1, {"cost": 2.0})]


def test_the_parts_of_steps_that_the_runtime_measures_are_left_out() -> None:
    points = [point(1, 1, "step/paused"), point(2, 1), point(3, 1, "step/read"), point(4, 1, "accuracy")]
    found, _, _ = followed([ok(job("SUCCEEDED"))], [page(*points)])
    assert found == [(1, {"cost": 2.0, "accuracy": 4.0})]


def test_an_outage_between_two_pages_loses_and_doubles_nothing() -> None:
    pages = [page(point(1, 1), more=True), *[AWAY] * (TRIES + 1), page(point(2, 2))]
    found, cursors, said = followed([ok(job()), ok(job("SUCCEEDED"))], pages)
    assert [step for step, _ in found] == [1, 2]
    assert set(cursors) == {"0", "1"}
    assert len(said) == 1


def test_an_outage_may_last_for_long() -> None:
    found, _, said = followed([*[AWAY] * TRIES * 20, ok(job("SUCCEEDED"))], [page(point(1, 1))])
    assert (len(found), len(said)) == (1, 20)


def test_the_pauses_of_an_outage_grow_to_ten_seconds() -> None:
    portal, _, clock = client({JOB: [*[AWAY] * TRIES * 8, ok(job("SUCCEEDED"))], POINTS: [page()]})
    for _ in polls(Job.from_json(job_body(), portal.jobs)):
        pass
    assert clock.slept[TRIES - 1 :: TRIES] == [0.5, 1, 2, 4, 8, 10, 10, 10]


def test_a_deleted_job_ends_the_watching() -> None:
    portal, _, _ = client({JOB: [problem(404, "not_found", "There is no such job.")]})
    with pytest.raises(Missing):
        list(polls(Job.from_json(job_body(), portal.jobs)))


REPORTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.sets(st.sampled_from(["cost", "accuracy"]), min_size=1)),
    max_size=10,
)


@given(REPORTS, st.lists(st.integers(0, 20), max_size=5))
def test_every_value_arrives_once_and_in_order_whatever_the_pages(
    reports: list[tuple[int, int, set[str]]], cuts: list[int]
) -> None:
    keys = [(trainer, step, key) for trainer, step, names in reports for key in sorted(names)]
    points = [
        Point(seq, 0.0, 1, f"trainer-{trainer}", step, key, float(seq))
        for seq, (trainer, step, key) in enumerate(keys, start=1)
    ]
    joined = Reports()
    borders = [0, *sorted(min(cut, len(points)) for cut in cuts), len(points)]
    found = [each for a, b in pairwise(borders) for each in joined.add(points[a:b])]
    found += joined.rest()
    assert [value for each in found for value in each.metrics.values()] == [point.value for point in points]
    assert [each.seq for each in found] == sorted(each.seq for each in found)
