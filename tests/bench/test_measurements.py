"""Measurements match their rows: what is killed, alternated, compared, and MISSED."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings

from bench import peers
from bench.datasets import reading as data
from bench.datasets import uploads
from bench.elasticity import targets as elastic
from bench.environment import stage
from bench.environment.servers import Absent
from bench.kubernetes import admission, admission_database, first_point, reaction
from bench.pages import growth, submissions
from bench.pages import start as portal
from bench.report import Row
from bench.runtime import dispatch, links, recovery, steps, updates
from bench.streams import live_log, points
from jobs.backends.local import process_sessions
from jobs.elastic.simulation import scenarios
from quota.models import Limit, Reservation
from runtime.contract import ReplicaState
from tests.factories import make_job


@contextmanager
def absent(*_given: object) -> Iterator[Any]:
    raise Absent("it is not installed")
    yield


def notes(rows: Iterator[Row] | list[Row]) -> list[tuple[str, bool, str]]:
    return [(row.row, row.met, row.note) for row in rows]


# --- Missing requirements --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("module", "row"), [(first_point, "K1"), (reaction, "K3")])
def test_a_row_of_the_cluster_is_missed_without_one(module: Any, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("REGISTRY", raising=False)
    ((name, met, note),) = notes(module.measure())
    assert (name, met) == (row, False)
    assert note.endswith("names no cluster")


def test_dispatch_on_etcd_is_missed_where_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "running_etcd", absent)
    row = dispatch._row("etcd on disk", dispatch.ETCD_GOAL, dispatch._on_etcd)
    assert notes([row]) == [("R8", False, "it is not installed")]


def test_shaped_links_are_missed_where_the_kernel_cannot_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links.namespaces, "star", absent)
    assert notes(links.measure()) == [("R1n", False, "it is not installed")] * 6


@pytest.mark.parametrize("wire", steps.GOALS)
def test_a_step_is_missed_without_gloo(wire: str) -> None:
    row = steps._against(wire, 10**6, 2, dict.fromkeys(steps.GOALS, 0.001))
    assert (row.met, row.value, row.note) == (False, 1000.0, "the peer torch is missing")


@pytest.mark.parametrize("way", ["NumPy", "accelerator"])
def test_an_update_is_missed_without_the_peer_or_the_accelerator(way: str) -> None:
    row = updates._row("SGD", 10**6, {"NumPy": 0.001}, way, 0.6)
    assert (row.met, row.note.endswith(("is missing", "is not installed"))) == (False, True)


def test_readers_that_are_not_installed_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "python_with", lambda *_modules: "")
    rows = list(data._reading(tmp_path, "D1", "1 to 100 KB", data.LONG, 1 << 18, (0.0, 0.0)))
    missed = [row.case for row in rows if not row.met and row.note == "the peer is missing"]
    assert len(missed) == len(data._PEERS) == 5


def test_an_upload_is_missed_without_nginx() -> None:
    row = uploads._row(100.0, None)
    assert (row.met, row.value, row.note) == (False, 100.0, "the peer nginx or curl is missing")


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (points, {"store": 3e6, "peer": 1.0, "ingest": 1e6}),
        (submissions, {"rate": 100.0, "submitted": 2, "admitted": 1, "excess": 0}),
        (growth, {"bytes": 1, "logs": 1, "metrics": 1}),
        (
            admission_database,
            dict.fromkeys(("rate", "seconds", "cpu", "rounds", "admitted", "transitions", "attempts", "held"), 1)
            | {"excess": 0},
        ),
    ],
)
def test_postgresql_is_missed_where_it_is_not_installed(
    module: Any, found: Mapping[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "child", lambda *_given: dict(found))
    monkeypatch.setattr(module.servers, "postgres", absent)
    monkeypatch.setattr(admission, "measure", list)
    rows = [row for row in module.measure() if "PostgreSQL" in row.case]
    assert [(row.met, row.note) for row in rows] == [(False, "it is not installed")]


def test_lines_in_the_browser_are_missed_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def stretches() -> Any:
        raise Absent("chromium is not installed")

    monkeypatch.setattr(live_log, "_windows", stretches)
    assert notes(live_log.measure()) == [("S1", False, "chromium is not installed")]


# --- Rounds ----------------------------------------------------------------------------------------------------------
def test_ways_to_read_take_turns_in_five_rounds_after_a_first() -> None:
    asked: list[str] = []

    def way(name: str) -> Callable[[], float]:
        return lambda: (asked.append(name), float(len(asked)))[1]

    speeds = data._speeds(10**9, {"ours": way("ours"), "peer": way("peer")})
    assert asked == ["ours", "peer"] * (data.ROUNDS + 1)
    assert data.ROUNDS == 5
    assert speeds == pytest.approx({"ours": 1 / 7, "peer": 1 / 8}), "medians without the first round"


def test_the_time_of_a_decision_is_a_median(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic.policy, "decide", lambda *_given: None)
    lengths = [1.0, 2.0, 30.0, 40.0, 50.0]
    clock = chain.from_iterable((0.0, length) for length in lengths)
    assert elastic.seconds_to_decide(1, 1, clock=lambda: next(clock)) == 30.0


def test_published_experiments_decide_with_the_delay_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, the published policy and fixed sizes alike."""
    seen = []
    monkeypatch.setattr(elastic, "simulate", lambda workload, policy, timing, seed: seen.append(timing))
    for name in ("regatta", "published", "fixed"):
        elastic._runs(name, scenarios.published_1)
    assert len(seen) == 3 * len(elastic.SEEDS)
    assert {timing.reaction for timing in seen} == {scenarios.REACTION}
    assert scenarios.REACTION > settings.SWEEP_SECONDS


# --- P2, P4, K5 ------------------------------------------------------------------------------------------------------
def test_each_job_of_the_first_point_has_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[Mapping[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path.endswith("/jobs"):
            submitted.append(json.loads(request.content))
        body = {
            "id": "1",
            "namespaces": [{"name": "ada"}],
            "finished": "now",
            "series": {"cost": {"x": [1]}},
        }
        return httpx.Response(200, json=body)

    monkeypatch.setattr(
        portal, "signed_in", lambda _: httpx.Client(base_url="http://portal", transport=httpx.MockTransport(answer))
    )
    for _ in range(3):
        portal.seconds_to_first_point(portal.Running("http://portal", 0.0))
    assert len({json.dumps(spec["files"]) for spec in submitted}) == 3


@pytest.mark.parametrize("excess", [0.0, 1.0])
def test_submissions_beyond_a_limit_are_missed(excess: float) -> None:
    found = {"rate": 1000.0, "submitted": 20, "admitted": 10, "excess": excess}
    _rate, committed = submissions._rows("SQLite", found)
    assert committed.met is (excess == 0.0)


@pytest.mark.django_db
def test_over_commitment_is_counted_by_namespace() -> None:
    """Two reservations with a limit of one are one too many, whatever another namespace has free."""
    full, empty = make_job(), make_job()
    for job, limit in ((full, 1), (empty, 5)):
        Limit.objects.update_or_create(namespace=job.namespace, resource="jobs", defaults={"amount": limit})
    amounts = {"jobs": 1, "cpu": 1000}
    for attempt in (1, 2):
        Reservation.objects.create(
            namespace=full.namespace, job=full.pk, attempt=attempt, amounts=amounts, created=full.created
        )
    assert submissions._commitments()[1:] == (2, 1)
    assert admission_database._excess() > 0


# --- R7 --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("way", "killed"), [(recovery.PROCESS, "children"), (recovery.MACHINE, "all")])
def test_a_lost_machine_takes_the_agent_and_all_its_processes(
    way: str, killed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kills: list[str] = []
    monkeypatch.setattr(process_sessions, "kill_children", lambda *_given: kills.append("children"))
    monkeypatch.setattr(process_sessions, "kill", lambda *_given: kills.append("all"))
    _Played(httpx.Client(), "1", tmp_path).kill("trainer-1", way)
    assert kills == [killed]


class _Played(recovery.RunningJob):
    """Job that has made progress at every query."""

    def points(self, first: float) -> recovery.Points:
        step = first + 2 * recovery.STEPS_AFTERWARDS
        return recovery.Points({name: {"x": [step], "min": [step], "max": [1e12], "count": [1]} for name in _SERIES})

    def _at_work(self, replica: str, start_number: int) -> tuple[Path, ReplicaState]:
        return self.data, _STATE


_SERIES = ("began", "accepted", "applied")
_STATE: Any = type("State", (), {"pid": 1, "ticks": 1, "start_number": 1})()
