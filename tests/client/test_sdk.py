"""The client in a program or a notebook."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from regatta import Client, Point, PortalError, Series
from regatta.errors import NotInstalled
from regatta.terminal.watch import Watch
from tests.client.portal import SERVER, Answer, PaperPortal, job, lines, ok

JOB, LOGS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/logs"
POINTS, METRICS = "GET /api/v1/jobs/j1/metrics/points", "GET /api/v1/jobs/j1/metrics"
COST = {"x": [0, 1], "min": [2.0, 0.5], "max": [4.0, 1.0], "last": [3.0, 0.5], "count": [4, 4]}
RUNS_THEN_ENDS: list[Answer] = [ok(job()), ok(job()), ok(job("SUCCEEDED"))]
SECONDS = 10


def client(answers: dict[str, list[Answer]]) -> Client:
    return Client(SERVER, "rgt_x", transport=PaperPortal(answers), sleep=lambda _seconds: None)


def points(*values: float, first: int = 1) -> Answer:
    found = [
        {"seq": seq, "time": 0.0, "attempt": 1, "replica": "trainer-0", "step": seq, "key": "cost", "value": value}
        for seq, value in enumerate(values, start=first)
    ]
    return ok({"points": found, "last": first + len(values) - 1, "more": False})


def test_a_job_waits_for_itself() -> None:
    assert client({JOB: RUNS_THEN_ENDS}).jobs.get("j1").wait().state == "SUCCEEDED"


def test_a_job_follows_its_log() -> None:
    running = client({JOB: RUNS_THEN_ENDS, LOGS: [ok(lines(1)), ok(lines(2))]}).jobs.get("j1")
    assert [line.seq for line in running.logs(follow=True)] == [1, 2]


def test_a_metric_is_arrays_of_numpy() -> None:
    series = client({JOB: [ok(job())], METRICS: [ok({"series": {"cost": COST}})]}).jobs.get("j1").metrics("cost")
    assert series.to_numpy()["x"].tolist() == [0.0, 1.0]
    assert np.asarray(series).tolist() == [3.0, 0.5]


def test_a_metric_that_was_never_reported_is_empty() -> None:
    assert len(client({JOB: [ok(job())], METRICS: [ok({"series": {}})]}).jobs.get("j1").metrics("loss")) == 0


def test_numbers_that_json_cannot_hold_come_as_numbers() -> None:
    series = Series.from_json({**COST, "max": ["NaN", "Infinity"]})
    assert np.isnan(series.max[0])
    assert np.isinf(series.max[1])


def test_a_missing_package_is_an_error_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NotInstalled, match="pip install pandas"):
        Series.from_json(COST).to_pandas()


def test_a_callback_gets_every_value_once_until_the_job_ends() -> None:
    received: list[Point] = []
    running = client({JOB: RUNS_THEN_ENDS, POINTS: [points(3.0), points(0.5, first=2)]}).jobs.get("j1")
    running.on("cost", received.append).wait(SECONDS)
    assert [(point.step, point.value) for point in received][:2] == [(1, 3.0), (2, 0.5)]


def test_an_error_in_a_callback_is_raised_to_the_waiting_thread() -> None:
    def fails(_point: Point) -> None:
        raise KeyError("mine")

    running = client({JOB: RUNS_THEN_ENDS, POINTS: [points(3.0)]}).jobs.get("j1")
    with pytest.raises(KeyError, match="mine"):
        running.on("cost", fails).wait(SECONDS)


def test_a_stopped_watch_delivers_nothing_more() -> None:
    received: list[int] = []
    known = threading.Event()

    def until_enough(enough: Any) -> Any:
        count = 0
        while not enough():
            count += 1
            yield count

    def take(number: int) -> None:
        received.append(number)
        if number == 3:
            known.wait(SECONDS)
            watch.stop()

    watch = Watch(until_enough, take)
    known.set()
    watch.wait(SECONDS)
    assert received == [1, 2, 3]


def test_a_figure_shows_the_cost() -> None:
    ended = client({JOB: [ok(job("SUCCEEDED"))], METRICS: [ok({"series": {"cost": COST}})]}).jobs.get("j1")
    [line] = ended.plot().data
    assert (line.name, list(line.x), list(line.y)) == ("cost", [0, 1], [3.0, 0.5])


def test_a_figure_is_redrawn_when_values_change() -> None:
    from regatta.terminal.plot import snapshots

    later = {**COST, "last": [3.0, 0.1]}
    answers: dict[str, list[Answer]] = {
        JOB: [ok(job()), ok(job()), ok(job()), ok(job("SUCCEEDED"))],
        METRICS: [ok({"series": {"cost": COST}}), ok({"series": {"cost": COST}}), ok({"series": {"cost": later}})],
    }
    running = client(answers).jobs.get("j1")
    assert [now["cost"].last[-1] for now in snapshots(running, ["cost"], lambda: False)] == [0.5, 0.1]


def test_a_client_without_an_address_uses_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_SERVER", "http://elsewhere/")
    monkeypatch.setenv("REGATTA_TOKEN", "rgt_env")
    assert Client().server == "http://elsewhere"


def test_every_error_is_one_kind_with_a_message() -> None:
    with pytest.raises(PortalError, match="Nothing at"):
        client({}).jobs.get("nosuch")
