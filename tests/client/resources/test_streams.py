"""Logs and metrics of jobs."""

from __future__ import annotations

import httpx
import pytest

from regatta.errors import Unreachable
from regatta.models import Page
from regatta.resources.streams import Follower
from tests.client.portal import Answer, client, job, lines, ok, problem

JOB, LOGS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/logs"


def test_logs_follows_the_pages_by_the_cursor() -> None:
    api, portal, _ = client({LOGS: [ok(lines(1, 2, more=True)), ok(lines(3))]})
    assert [line.seq for line in api.jobs.logs.read("j1")] == [1, 2, 3]
    assert [request.url.params["after"] for request in portal.asked] == ["0", "2"]


def test_a_page_that_a_filter_left_empty_is_not_the_end() -> None:
    api, portal, _ = client({LOGS: [ok(lines(last=500, more=True)), ok(lines(501))]})
    assert [line.seq for line in api.jobs.logs.read("j1", replica="trainer-0")] == [501]
    assert portal.asked[1].url.params["after"] == "500"


def test_follow_reads_lines_that_arrived_with_the_end() -> None:
    api, _, _ = client({JOB: [ok(job()), ok(job("SUCCEEDED"))], LOGS: [ok(lines(1)), ok(lines(2, 3))]})
    assert [line.seq for line in api.jobs.logs.follow("j1")] == [1, 2, 3]


def test_follow_reconnects_without_losing_or_doubling_a_line() -> None:
    answers: list[Answer] = [ok(lines(1)), httpx.ReadError("cut"), problem(502, "", ""), ok(lines(2))]
    api, portal, _ = client({JOB: [ok(job()), ok(job("SUCCEEDED"))], LOGS: answers})
    assert [line.seq for line in api.jobs.logs.follow("j1")] == [1, 2]
    assert [request.url.params["after"] for request in portal.asked if request.url.path.endswith("logs")] == [
        "0",
        "1",
        "1",
        "1",
    ]


def test_a_lost_stream_is_an_error_and_not_an_end() -> None:
    api, _, _ = client({JOB: [ok(job())], LOGS: [ok(lines(1)), httpx.ConnectError("refused")]})
    with pytest.raises(Unreachable):
        list(api.jobs.logs.follow("j1"))


def test_metrics_are_typed() -> None:
    series = {"x": [0], "min": [1.0], "max": [3.0], "last": [2.0], "count": [4]}
    api, _, _ = client({"GET /api/v1/jobs/j1/metrics": [ok({"series": {"cost": series}, "next": 4})]})
    assert api.jobs.metrics.series("j1")["cost"].last == [2.0]


def test_a_follower_reads_once_more_after_the_end_from_the_last_cursor() -> None:
    states, begins = iter([False, True]), []

    def read(after: int) -> list[Page]:
        begins.append(after)
        return [Page((), after + 1, False)]

    follower = Follower(lambda _job_id: next(states), lambda _seconds: None)
    assert [page.last for page in follower.pages("j1", read, 4, lambda: False)] == [5, 6]
    assert begins == [4, 5]


def test_a_follower_reads_nothing_when_it_is_enough() -> None:
    follower = Follower(lambda _job_id: False, lambda _seconds: None)
    assert list(follower.pages("j1", lambda _after: [Page((), 1, False)], 0, lambda: True)) == []
