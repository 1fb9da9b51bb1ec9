"""The simulator on small clusters, the published experiments in short, and trace files with their error messages."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.elasticity.decision_checker import CheckedPolicy
from jobs.elastic.__main__ import main
from jobs.elastic.policy.model import Amounts, Core, Job, Node, Service
from jobs.elastic.policy.policy import Rules, decide
from jobs.elastic.simulation import scenarios, traces
from jobs.elastic.simulation.metrics import KEYS, Outcome, jain
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Arrival, Demand, Timing, Workload

ONE = Amounts(1000, 100)
# No randomness: a pod starts one second after its request and is gone two seconds after it is stopped.
PLAIN = Timing(start=(1.0, 1.0), stop=(2.0, 2.0), calls=1000.0, task=0.0)


def nodes(count: int, cores: int = 4) -> list[Node]:
    return [Node(f"n{number}", Amounts(cores * 1000, 64_000)) for number in range(count)]


def comes(key: str, at: float = 0.0, least: int = 1, most: int = 8, **more: object) -> Arrival:
    return Arrival(at, Job(key, least, most, ONE, Core()), **more)  # type: ignore[arg-type]


def plain(arrivals: Sequence[Arrival], count: int = 2, window: float = 100.0, **more: object) -> Outcome:
    return simulate(Workload(nodes(count), arrivals, window=window, until=window, **more), decide, PLAIN, 0)  # type: ignore[arg-type]


def test_a_job_waits_for_the_decision_and_for_its_pods_to_start() -> None:
    outcome = plain([comes("a", at=11.0)])
    assert outcome.waits["a"] == pytest.approx(1.5, abs=0.1)
    assert outcome.trainers == {"a": 8}


def test_utilisation_is_weighted_by_time() -> None:
    outcome = plain([comes("a", at=48.5, most=4)])
    assert outcome.utilisation == pytest.approx(0.25, abs=0.01)
    assert outcome.trainer_seconds == pytest.approx(200, abs=2)


def test_a_job_ends_when_its_work_is_done() -> None:
    outcome = plain([comes("a", work=80.0)])
    assert outcome.completions["a"] == pytest.approx(11.5, abs=1.0)


def test_more_trainers_do_less_each_where_the_work_does_not_scale() -> None:
    slow = plain([comes("a", most=2, work=20.0, scaling=1.0)]).completions["a"]
    assert slow == pytest.approx(21.5, abs=1.0)


def test_a_job_ends_after_its_duration() -> None:
    assert plain([comes("a", at=11.0, duration=30.0)]).completions["a"] == pytest.approx(31.5, abs=0.1)


def test_trainers_count_only_while_the_servers_are_there() -> None:
    slow = replace(PLAIN, start=(1.0, 1.0), calls=1.0)
    job = Job("a", 1, 1, ONE, Core(server=ONE, servers=3))
    outcome = simulate(Workload(nodes(1), [Arrival(0.0, job)], window=20.0, until=20.0), decide, slow, 0)
    assert outcome.trainer_seconds < 16


def test_a_stopped_trainer_loses_its_current_task() -> None:
    arrivals = [comes("a"), comes("b", at=50.0, least=2)]
    workload = Workload(nodes(2), arrivals, window=100.0, until=100.0)
    assert simulate(workload, decide, replace(PLAIN, task=2.0), 0).lost_seconds > 0
    assert simulate(workload, decide, PLAIN, 0).lost_seconds == 0


def test_a_service_gets_capacity_from_jobs_and_its_recovery_is_timed() -> None:
    service, demands = Service("web", ONE, 2), [Demand(50.0, "web", 6)]
    outcome = plain([comes("a")], services=[service], demands=demands)
    assert outcome.service_full_recovery
    assert outcome.service_recovery_max is not None
    assert outcome.service_recovery_max < 6
    assert outcome.trainers["a"] <= 2


def test_a_service_that_never_gets_its_capacity_is_reported() -> None:
    workload = Workload(
        nodes(1), [comes("a", most=4)], [Service("web", ONE, 0)], [Demand(50.0, "web", 2)], 100.0, 100.0
    )
    greedy = simulate(workload, scenarios.POLICIES["fixed"], PLAIN, 0)
    assert (greedy.service_recovery_max, greedy.service_full_recovery) == (50.0, False)


def test_speeds_are_learned_from_what_has_run() -> None:
    """While another job ran it had three trainers, as fast as the four before. So it does not take four again."""
    arrivals = [comes("a", most=4, scaling=1.0), comes("b", at=30.0, most=4, duration=20.0)]
    assert plain(arrivals, count=1).trainers == {"a": 3}
    assert plain([replace(arrivals[0], scaling=0.0), arrivals[1]], count=1).trainers == {"a": 4}


def test_jobs_that_stop_for_others_come_back_and_all_end() -> None:
    """No job starves: small jobs keep coming, and a big one of low priority still gets its turn."""
    small = [replace(comes(f"s{at}", at=float(at * 5), most=2, duration=20.0)) for at in range(40)]
    big = replace(comes("big", at=20.0, least=8, duration=10.0), job=Job("big", 8, 8, ONE, priority=-1))
    workload = Workload(nodes(2), [*small, big], window=3000.0, until=3000.0, until_done=True)
    outcome = simulate(workload, decide, PLAIN, 0)
    assert outcome.never_started == 0
    assert len(outcome.completions) == 41


TRACES = Path(__file__).parents[4] / "bench" / "elasticity" / "traces"


def livelock(arrival: float) -> tuple[CheckedPolicy, Outcome]:
    """Simulate one core with a job that has it from the beginning, and a later one a step of priority higher."""
    workload = traces.workload(TRACES / "priority-livelock.csv", None, TRACES / "one-core.json", None)
    low, high = workload.arrivals
    checked = CheckedPolicy(partial(decide, rules=Rules(preempts=True)))
    return checked, simulate(replace(workload, arrivals=[low, replace(high, at=arrival)]), checked, PLAIN, 0)


def test_a_job_that_comes_after_its_head_start_waits_and_stops_no_other() -> None:
    checked, outcome = livelock(3700.0)
    assert (checked.preemptions, len(outcome.completions)) == ({}, 2)
    assert outcome.waits["new-high"] == pytest.approx(20_000 - 3700, abs=10)


def test_a_job_that_comes_within_its_head_start_stops_the_other_once() -> None:
    checked, outcome = livelock(3500.0)
    assert checked.preemptions == {("old-low", "new-high"): 1}
    assert outcome.waits["new-high"] < 10


@pytest.mark.invariant("An elastic job stops at most once for the same other job.")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5 * 3600), st.integers(-1, 2), st.integers(1, 4), st.integers(100, 20_000)),
        min_size=2,
        max_size=9,
    ),
    st.integers(1, 2),
)
def test_nobody_stops_twice_for_the_same_job_whatever_comes_when(
    jobs: list[tuple[int, int, int, int]], count: int
) -> None:
    """``jobs``: their arrival within hours, priority, least number of trainers, and work."""
    arrivals = [
        Arrival(float(at), Job(f"j{number}", least, least + 1, ONE, priority=priority), work=float(work))
        for number, (at, priority, least, work) in enumerate(jobs)
    ]
    workload = Workload(nodes(count), arrivals, window=1e9, until=1e9, until_done=True)
    checked = CheckedPolicy(partial(decide, rules=Rules(preempts=True)))
    outcome = simulate(workload, checked, replace(PLAIN, interval=300.0), 0)
    assert checked.most_for_one <= 1
    assert checked.taken_back == []
    assert len(outcome.completions) == len(jobs)


@pytest.mark.parametrize(("amounts", "expected"), [([5, 5], 1.0), ([10, 0], 0.5), ([], 1.0), ([0], 1.0)])
def test_jain(amounts: list[float], expected: float) -> None:
    assert jain(amounts) == expected


# --- The published experiments ----------------------------------------------------------------------------------------
def timing(policy: str) -> Timing:
    """Return the timing of the platform for its own policy, and that of the measurements for the others."""
    return scenarios.TIMING if policy == "regatta" else scenarios.PUBLISHED_TIMING


@cache
def first(policy: str) -> Outcome:
    return simulate(scenarios.published_1(0), scenarios.POLICIES[policy], timing(policy), 0)


@cache
def second(policy: str) -> Outcome:
    return simulate(scenarios.published_2(0), scenarios.POLICIES[policy], timing(policy), 0)


def test_jobs_of_a_fixed_size_are_as_they_were_measured() -> None:
    """The simulator reproduces the measurements.

    Measured were 82.4 % in use, 262.6 s of waiting, 14 jobs that never started, and 177,551 trainer-seconds.
    """
    outcome = first("fixed")
    assert outcome.utilisation == pytest.approx(0.824, abs=0.01)
    assert outcome.wait_mean == pytest.approx(262.6, rel=0.05)
    assert outcome.never_started == 14
    assert outcome.trainer_seconds == pytest.approx(177_551, rel=0.04)


def test_the_published_policy_is_about_as_it_was_measured() -> None:
    """Measured were 80.6 % in use and 143,896 trainer-seconds; the service never got its 400 replicas back."""
    assert first("published").utilisation == pytest.approx(0.806, abs=0.015)
    assert first("published").trainer_seconds == pytest.approx(143_896, rel=0.05)
    assert second("published").service_full_recovery is False


def test_twenty_jobs_start_at_once_and_share_the_cluster() -> None:
    outcome = first("regatta")
    assert outcome.wait_mean < 20
    assert outcome.never_started == 0
    assert outcome.jain > 0.9
    assert outcome.utilisation > first("published").utilisation


def test_the_service_gets_every_hundred_back_within_seconds() -> None:
    outcome = second("regatta")
    assert outcome.service_full_recovery
    assert outcome.service_recovery_max is not None
    assert outcome.service_recovery_max < 15


def test_the_same_seed_gives_the_same_outcome() -> None:
    again = simulate(scenarios.published_2(0), scenarios.POLICIES["published"], timing("published"), 0)
    assert again == second("published")


# --- Files ------------------------------------------------------------------------------------------------------------
JOBS = "time,name,min,max,cpu,memory,gpu,duration,priority\n0,a,1,4,1,1Gi,,60,\n5,b,2,2,500m,1Gi,1,30,1\n"
SERVICES = "time,name,replicas,cpu,memory,priority\n0,web,2,1,1Gi,5\n20,web,3,1,1Gi,5\n"
CLUSTER = '{"nodes": [{"name": "n", "count": 2, "cpu": 4, "memory": "16Gi", "gpu": 2}]}'


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    paths = tuple(tmp_path / name for name in ("jobs.csv", "services.csv", "cluster.json"))
    for path, text in zip(paths, (JOBS, SERVICES, CLUSTER), strict=True):
        path.write_text(text)
    return paths  # type: ignore[return-value]


def test_a_trace_is_simulated_until_all_jobs_have_ended(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    figures_path, raw, page = tmp_path / "out.json", tmp_path / "raw", tmp_path / "out.html"
    jobs, services, cluster = map(str, files)
    arguments = ["simulate", "--trace", jobs, "--services", services, "--cluster", cluster]
    assert main([*arguments, "--json", str(figures_path), "--csv", str(raw), "--html", str(page)]) == 0
    figures = json.loads(figures_path.read_text())
    assert tuple(figures) == KEYS
    assert (figures["never_started"], figures["service_full_recovery"]) == (0, True)
    assert [row["name"] for row in csv.DictReader((raw / "jobs.csv").open())] == ["a", "b"]
    assert len(list(csv.DictReader((raw / "samples.csv").open()))) > 60
    assert "plotly" in page.read_text()


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (0, "time,name\n", "the first line has no min, max, cpu, memory"),
        (0, JOBS.replace("0,a", "x,a"), "line 2: time: x is no number of seconds"),
        (0, JOBS.replace("a,1,4", "a,5,4"), "line 2: min has to be at least 1 and at most max"),
        (0, JOBS.replace("1Gi,,60", "lots,,60"), '"lots" is not an amount of memory'),
        (0, JOBS.replace("5,b", "5,a"), "two jobs have the same name"),
        (0, JOBS.replace(",60,", ",,"), "Say with --until how long"),
        (1, SERVICES.replace("20,web,3", "20,web,"), "line 3: replicas is empty"),
        (2, "{}", "is no description of nodes"),
        (2, '{"nodes": []}', "name at least one node"),
    ],
)
def test_a_faulty_file_is_an_error_message(
    files: tuple[Path, Path, Path], number: int, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files[number].write_text(text)
    jobs, services, cluster = map(str, files)
    assert main(["simulate", "--trace", jobs, "--services", services, "--cluster", cluster]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.csv"
    assert main(["simulate", "--trace", str(missing), "--cluster", str(files[2])]) == 2
    assert capsys.readouterr().err == f"{missing} cannot be read: No such file or directory.\n"


def test_a_place_that_cannot_be_written_is_named(
    files: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "missing" / "out.json"
    assert main(["simulate", "--trace", str(files[0]), "--cluster", str(files[2]), "--json", str(nowhere)]) == 2
    assert capsys.readouterr().err == f"{nowhere} cannot be written: No such file or directory.\n"


def test_jobs_without_an_end_are_simulated_until_the_given_time(files: tuple[Path, Path, Path]) -> None:
    files[0].write_text(JOBS.replace(",60,", ",,"))
    workload = traces.workload(files[0], None, files[2], 50.0)
    assert (workload.until, workload.until_done) == (50.0, False)


def test_a_reader_that_leaves_early_gets_no_traceback_and_the_files_are_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs.elastic", "simulate", "--csv", str(tmp_path)]
    command += ["--trace", str(TRACES / "priority-livelock.csv"), "--cluster", str(TRACES / "one-core.json")]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "jobs.csv").exists()
