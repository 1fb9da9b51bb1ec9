"""A row of the benchmark measures what its text states, and is MISSED if it cannot."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from bench import catalogue, peers
from bench.datasets import reading as data
from bench.datasets import uploads
from bench.elasticity import open_traces
from bench.elasticity import targets as elastic
from bench.environment import servers
from bench.kubernetes import admission, admission_database, first_point, paddlejobs, reaction
from bench.pages import start as portal
from bench.pages import submissions
from bench.report import Row
from bench.runtime import dispatch, recovery, scaling, steps, updates
from bench.streams import stream_faults
from jobs.elastic.simulation import scenarios
from portal.settings import SWEEP_SECONDS
from runtime import contract
from runtime.parameters import optimisers
from runtime.parameters.kernels import jit, numpy_kernels

GOALS = {
    "R": "R1 R1c R1n R2 R3 R4 R5 R6 R7 R8 R9 R10",
    "D": "D1 D1s D2 D3 D4 D5",
    "S": "S1 S2 S3 S4 S5 S6",
    "P": "P1 P2 P3 P4 P5",
    "K": "K1 K2 K3 K4 K5",
    "E": "E1 E2 E3 E4 E5 E6 E7 E8 E9",
    "N": "N4 N5",
    "X": "X1 X2 X3 X5",
}


def cases(rows: object) -> dict[str, Row]:
    assert isinstance(rows, list | Iterator)
    return {row.case: row for row in rows}


def test_each_number_to_reach_has_a_row() -> None:
    assert set(catalogue.ROWS) == {row for rows in GOALS.values() for row in rows.split()}


# --- Runtime ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "available", lambda: False)


@pytest.mark.usefixtures("no_accelerator")
def test_r3_without_accelerator_or_peer_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "ROUNDS", 1)
    monkeypatch.setattr(peers, "python_with", lambda module: None)
    rows = list(updates._rows(optimisers.SGD(1e-3), 1, None))
    assert [row.met for row in rows] == [False, False]
    assert [row.value is None for row in rows] == [False, True]


def test_r3_runs_what_a_parameter_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the compiled loop."""
    seen: dict[str, Any] = {}

    def remember(rule: object, blocks: object, ways: dict[str, Any], *rest: object) -> dict[str, float]:
        seen.update(ways)
        return dict.fromkeys(ways, 1.0)

    monkeypatch.setattr(updates, "_alternate", remember)
    monkeypatch.setattr(updates, "wait_until", lambda *given: None)
    monkeypatch.setattr(jit, "available", lambda: True)
    monkeypatch.setattr(jit, "begin", lambda *given: None)
    list(updates._rows(optimisers.SGD(1e-3), 1, None))
    assert seen == {"NumPy": numpy_kernels.run, "accelerator": optimisers.run}


def test_r5_shares_no_memory_with_the_parameter_server() -> None:
    linked = scaling.Linked(contract.read({}), "127.0.0.1:1", "127.0.0.1:2")
    assert linked.store(contract.F32)._share is False


def test_r5_trains_on_records_of_a_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scaling, "TASKS", 2)
    monkeypatch.setattr(scaling, "RECORDS", 2 * scaling.BATCH * scaling.TASK_BATCHES)
    scaling._write_data(tmp_path)
    found = scaling.catalogue.find(scaling.DATASET, [tmp_path])
    chunks = scaling.catalogue.chunks(found, "train")
    assert [chunk.records for chunk in chunks] == [scaling.BATCH * scaling.TASK_BATCHES] * 2


def test_r7_kills_a_process_alone_and_a_whole_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the second way makes the lease expire."""
    killed: list[str] = []
    monkeypatch.setattr(recovery.process_sessions, "kill_children", lambda *given: killed.append("children"))
    monkeypatch.setattr(recovery.process_sessions, "kill", lambda *given: killed.append("session"))
    monkeypatch.setattr(recovery, "_until", lambda what, condition: None)
    state = SimpleNamespace(pid=1, ticks=1, start_number=1)
    monkeypatch.setattr(recovery.RunningJob, "_at_work", lambda self, replica, start_number: (tmp_path, state))
    monkeypatch.setattr(recovery.RunningJob, "points", lambda self, first: recovery.Points({}))
    job = recovery.RunningJob(SimpleNamespace(), "id", tmp_path)  # type: ignore[arg-type]
    for way in recovery.WAYS:
        job.kill("pserver-0", way)
    assert killed == ["children", "session"]


@pytest.mark.parametrize(
    ("kill", "met"),
    [
        (recovery.Kill(1.0, 1.0, kept=True), True),
        (recovery.Kill(1.0, 1.0, kept=False), False),
        (recovery.Kill(1.0, 100.0, kept=True), False),
        (recovery.Kill(100.0, 1.0, kept=True), False),
    ],
)
def test_r7_is_missed_by_a_lost_step_and_by_a_standstill(kill: recovery.Kill, met: bool) -> None:
    row = recovery._row(contract.PSERVER, recovery.MACHINE, [kill] * 3)
    assert row.met is met
    assert row.goal == f"<= {contract.LEASE_SECONDS[contract.PSERVER] + 2:g}, 0 lost"


def test_r8_without_etcd_is_missed_and_names_it() -> None:
    def absent() -> float:
        raise servers.Absent("etcd is missing")

    row = dispatch._row("etcd on disk", 4000, absent)
    assert (row.met, row.note) == (False, "etcd is missing")


def test_r8_measures_the_largest_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_on_embedded", lambda: 1.0)
    monkeypatch.setattr(dispatch, "_on_etcd", lambda: 1.0)
    monkeypatch.setattr(dispatch, "_largest_commit", lambda: 101 * 1024)
    (row,) = [row for row in dispatch.measure() if "commit" in row.case]
    assert (row.value, row.met) == (101, False)


@pytest.mark.parametrize(("digests", "met"), [(["a", "a"], True), (["a", "b"], False)])
def test_r10_compares_two_runs_on_real_batches_over_tcp(
    monkeypatch: pytest.MonkeyPatch, digests: list[str], met: bool
) -> None:
    runs: list[tuple[object, ...]] = []

    @contextlib.contextmanager
    def ours(*given: object) -> Iterator[SimpleNamespace]:
        runs.append(given)
        yield SimpleNamespace(makers=[])

    monkeypatch.setattr(steps, "ours", ours)
    monkeypatch.setattr(steps, "make_steps", lambda makers, count: [(0.0, digests[len(runs) - 1])])
    row = steps._exact(2)
    assert ([wire for _, wire, *_ in runs], row.met) == (["digits", "digits"], met)


# --- Data ------------------------------------------------------------------------------------------------------------
def test_d1_takes_five_rounds_in_turns_and_their_median(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def way(name: str, *seconds: float) -> Callable[[], float]:
        left = itertools.chain([1000.0], seconds)  # the first fills the page cache

        def read() -> float:
            order.append(name)
            return next(left)

        return read

    monkeypatch.setattr(data, "ROUNDS", 5)
    speeds = data._speeds(10**9, {"ours": way("ours", 1, 9, 2, 9, 4), "peer": way("peer", 5, 5, 5, 5, 5)})
    assert order == ["ours", "peer"] * 6
    assert speeds == {"ours": 1 / 4, "peer": 1 / 5}


def test_d1_misses_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data, "ROUNDS", 1)
    monkeypatch.setattr(peers, "python_with", lambda module: None)
    rows = list(data._reading(tmp_path, "D1", "1 to 100 KB", data.LONG, 1 << 20, (0.0, 0.0)))
    beside_peers = [row for row in rows if "beside a raw read" not in row.case]
    assert len(beside_peers) == len(data._PEERS)
    assert {(row.met, row.note) for row in beside_peers} == {(False, "the peer is missing")}


def test_d1_compares_bytes_with_bytes_and_views_with_views(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    speeds = {"raw": 8.0, "bytes": 4.0, "views": 6.0, **dict.fromkeys(data._PEERS, 1.0)}
    monkeypatch.setattr(data, "_speeds", lambda size, ways: speeds)
    monkeypatch.setattr(peers, "python_with", lambda module: None)
    rows = {row.case: row for row in data._reading(tmp_path, "D1", "x", data.LONG, 1 << 10, (0.0, 0.0))}
    for peer in data._PEERS.values():
        kind = "views" if peer.views else "bytes"
        assert rows[f"x as {kind}, beside {peer.package}: GB/s"].value == speeds[kind]


def test_d2_indexes_with_headers_in_the_page_cache_and_from_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[str] = []
    monkeypatch.setattr(data, "ROUNDS", 1)
    monkeypatch.setattr(data, "INDEXED", 4 << 20)
    monkeypatch.setattr(data, "_forget", lambda path: events.append("forget"))

    def index(path: Path) -> tuple[float, float]:
        events.append("index")
        return (2.0 if events.count("index") == 1 else 0.5), 17.0

    monkeypatch.setattr(data, "_index_apart", index)
    warm, cold, memory = data._indexing(tmp_path)
    assert events == ["forget", "index", "index"]
    assert ((warm.value, warm.met), (cold.value, cold.met), memory.met) == ((0.5, True), (2.0, False), False)


def test_d4_reads_idle_memory_before_the_first_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events: list[str] = []

    class Http:
        headers = {"Authorization": "Bearer x"}

        def put(self, *given: object, **named: object) -> None:
            events.append("request")

    @contextlib.contextmanager
    def started(name: str, thing: object) -> Iterator[object]:
        events.append(name)
        yield thing

    monkeypatch.setattr(uploads, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(portal, "running_here", lambda folder: started("start", SimpleNamespace()))
    monkeypatch.setattr(portal, "signed_in", lambda running: started("sign in", Http()))
    monkeypatch.setattr(portal, "namespace_of", lambda http: "ada")
    monkeypatch.setattr(portal, "answer_of", lambda answer: None)
    monkeypatch.setattr(uploads, "_portal_memory", lambda running: events.append("look") or {})
    with uploads._portal(tmp_path):
        pass
    assert events == ["start", "look", "sign in", "request"]


@pytest.mark.processes
def test_d4_counts_worker_and_sweep_too(monkeypatch: pytest.MonkeyPatch) -> None:

    sleeps = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    children = [
        subprocess.Popen([*sleeps, role], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for role in ("serve", "work", "sweep")
    ]
    try:
        monkeypatch.setattr(uploads, "_web_process", lambda port: children[0].pid)
        found = uploads._portal_memory(SimpleNamespace(address="http://127.0.0.1:1"))  # type: ignore[arg-type]
        assert uploads._parent(children[0].pid) == os.getpid()
        assert set(found) == {"web process", "supervisor", "worker", "sweep"}
    finally:
        for child in children:
            child.communicate()


# --- Portal ----------------------------------------------------------------------------------------------------------
def test_p2_submits_code_that_no_job_had_before(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[dict[str, str]] = []

    class Http:
        def post(self, path: str, json: dict[str, Any]) -> None:
            posted.append(json["files"])

    @contextlib.contextmanager
    def signed_in(running: object) -> Iterator[Http]:
        yield Http()

    monkeypatch.setattr(portal, "signed_in", signed_in)
    monkeypatch.setattr(portal, "namespace_of", lambda http: "ada")
    monkeypatch.setattr(portal, "answer_of", lambda answer: {"id": "job"})
    monkeypatch.setattr(portal, "wait_until", lambda *given: None)
    monkeypatch.setattr(portal, "cancel", lambda *given: None)
    for _ in range(2):
        portal.seconds_to_first_point(portal.Running("http://127.0.0.1:1", 0.0))
    one, other = posted
    assert one != other


DECIDED = {"rate": 1000.0, "submitted": 200, "admitted": 100, "excess": 0}


@pytest.mark.parametrize(("change", "met"), [({}, True), ({"excess": 1}, False), ({"admitted": 1}, False)])
def test_p4_is_missed_by_one_admission_too_many_and_by_refusals(change: dict[str, int], met: bool) -> None:
    rows = list(submissions._rows("SQLite", {**DECIDED, **change}))
    assert all(row.met for row in rows) is met


def test_p4_admits_half_of_the_jobs_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(submissions, "_namespace", lambda limit: limits.append(limit) or "team")
    monkeypatch.setattr(submissions, "_decide", lambda submitted, count: None)
    monkeypatch.setattr(submissions, "_submit", lambda *given: None)
    submissions._round("http://127.0.0.1:1", "token")
    assert 2 * sum(limits) == submissions.JOBS


@contextlib.contextmanager
def no_postgres(folder: Path) -> Iterator[str]:
    raise servers.Absent("PostgreSQL is missing")
    yield ""


@pytest.mark.parametrize("bench", [submissions, admission_database], ids=["P4", "K5"])
def test_without_postgresql_its_rows_are_missed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**DECIDED, "seconds": 1, "cpu": 1, "rounds": 1, "transitions": 100, "attempts": 100, "held": 1}
    monkeypatch.setattr(bench.stage, "child", lambda *given: found)
    monkeypatch.setattr(bench.servers, "postgres", no_postgres)
    monkeypatch.setattr(admission, "admissions_a_second", lambda: 1000.0)
    rows = [row for row in bench.measure() if "PostgreSQL" in row.case]
    assert [(row.met, row.note) for row in rows] == [(False, "PostgreSQL is missing")]


# --- Kubernetes ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bench", [first_point, reaction], ids=["K1", "K3"])
def test_without_a_cluster_its_row_is_missed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert [(row.met, "names no cluster" in row.note) for row in bench.measure()] == [(False, True)]


def test_k2_counts_passes_with_changes() -> None:
    controller = SimpleNamespace(reconcile=lambda key: "settled")
    with pytest.raises(RuntimeError, match="acted"):
        paddlejobs._rate(controller, ["team/j0"], "acted")  # type: ignore[arg-type]


def test_k2_takes_the_median_of_rounds_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"settled": iter([1.0, 9.0, 2.0]), "acted": iter([30.0, 10.0, 20.0])}
    monkeypatch.setattr(paddlejobs, "ROUNDS", 3)
    monkeypatch.setattr(paddlejobs, "JOBS", 1)
    monkeypatch.setattr(paddlejobs, "_filled", lambda: SimpleNamespace(reconcile=lambda key: "settled"))
    monkeypatch.setattr(paddlejobs, "_lose_a_pod", lambda controller, number: None)
    monkeypatch.setattr(paddlejobs, "_rate", lambda controller, keys, expected: next(rates[expected]))
    assert paddlejobs.passes_a_second() == (20.0, 2.0)


def test_k5_is_compared_with_kueue_only_through_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published rate includes a control plane: the policy's time in memory has no ratio to it."""
    monkeypatch.setattr(admission, "admissions_a_second", lambda: 1000.0)
    (alone,) = admission.measure()
    found = {**DECIDED, "seconds": 1, "cpu": 1, "rounds": 1, "transitions": 100, "attempts": 100, "held": 1}
    through, excess = admission_database._rows("SQLite", found)
    assert (alone.peer, alone.ratio) == (None, None)
    assert (through.peer, excess.met) == (admission.PEER, True)
    assert not list(admission_database._rows("SQLite", {**found, "excess": 1.0}))[1].met
    assert not list(admission_database._rows("SQLite", {**found, "attempts": 99}))[1].met


# --- Elastic jobs ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["regatta", "published", "fixed"])
def test_e1_to_e6_decide_with_the_reaction_time_of_the_product(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event waits for the next sweep, and for the end of that sweep."""
    timings: list[float | None] = []
    monkeypatch.setattr(
        elastic, "simulate", lambda workload, policy, timing, seed: timings.append(timing.reaction) or workload
    )
    elastic._runs(name, scenarios.published_1)
    assert set(timings) == {scenarios.REACTION}
    assert scenarios.REACTION > SWEEP_SECONDS


def test_e7_is_the_median_of_five_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic.policy, "decide", lambda cluster, now: None)
    seconds = [5.0, 1.0, 4.0, 2.0, 9.0]
    moments = iter(itertools.chain.from_iterable((10 * n, 10 * n + each) for n, each in enumerate(seconds)))
    assert elastic.seconds_to_decide(1, 1, clock=lambda: next(moments)) == 4.0


def test_e8_compares_all_policies_on_all_traces_with_one_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(open_traces, "workload", lambda trace, seed: None)
    monkeypatch.setattr(open_traces, "simulate", lambda workload, policy, timing, seed: seen.append(timing))
    for name in open_traces.POLICIES:
        open_traces.run("half-3", name, 0)
    assert seen == [open_traces.TIMING] * len(open_traces.POLICIES)
    assert set(open_traces.PEERS) == set(open_traces.POLICIES) - {"regatta", open_traces.PREEMPTING}
    files = {path.stem for path in open_traces.FOLDER.glob("*.csv")} - {"priority-livelock"}
    assert files == {*open_traces.OPEN, *open_traces.derived_traces.FILES}


def test_s6_counts_no_lines_of_a_job_that_did_not_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines that were never printed are not lost; the row gives the outcome of the job."""
    state = {"state": "FAILED", "why": "trainer-0 had not registered.", "finished": "2026-01-01T00:00:00Z"}
    monkeypatch.setattr(stream_faults.portal, "answer_of", lambda answer: state)
    monkeypatch.setattr(httpx.Client, "get", lambda *_: None)
    with pytest.raises(RuntimeError, match="The job is FAILED: trainer-0 had not registered"):
        stream_faults.Site(tmp_path, 0, 0).check("job")
    state["state"] = "SUCCEEDED"
    stream_faults.Site(tmp_path, 0, 0).check("job")
