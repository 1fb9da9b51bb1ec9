"""The open traces are complete, and the claims of the benchmark hold on the smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.elasticity import derived_traces, open_traces


@pytest.mark.parametrize(
    ("trace", "jobs"), [("half-3", 80), ("tuned-1", 160), ("tuned-6", 160), ("as-submitted-4", 160), ("double", 320)]
)
def test_a_trace_has_all_its_jobs_within_eight_hours_and_each_fits(trace: str, jobs: int) -> None:
    workload = open_traces.workload(trace)
    assert len(workload.arrivals) == jobs
    assert workload.arrivals[-1].at < 8 * 3600
    assert sum(node.allocatable.gpu for node in workload.nodes) == 64
    assert all(1 <= arrival.job.first <= arrival.job.most <= 64 for arrival in workload.arrivals)


@pytest.mark.parametrize("trace", derived_traces.FILES)
def test_a_derived_trace_matches_its_source(trace: str, tmp_path: Path) -> None:
    derived_traces.write(trace, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (open_traces.FOLDER / f"{trace}.csv").read_text()
    workload = open_traces.workload(trace)
    gpus = sum(node.allocatable.gpu for node in workload.nodes)
    assert all(arrival.job.least <= arrival.job.first <= gpus for arrival in workload.arrivals)
    other = open_traces.workload(trace, seed=1)
    assert other.arrivals != workload.arrivals, "another seed is another draw"


def test_jobs_are_done_sooner_than_under_least_attained_service_and_marginal_gain() -> None:
    outcomes = {name: open_traces.run("half-3", name, 0).outcome for name in ("regatta", "tiresias", "optimus")}
    means = {name: outcome.completion_mean for name, outcome in outcomes.items()}
    assert all(len(outcome.completions) == 80 for outcome in outcomes.values())
    assert means["regatta"] is not None
    assert means["regatta"] < (means["tiresias"] or 0.0)
    assert means["regatta"] < (means["optimus"] or 0.0)


def test_with_preemption_on_hours_of_priorities_nobody_stops_twice_for_the_same_job() -> None:
    run = open_traces.run("hours-6", open_traces.PREEMPTING, 0)
    assert run.preempted == 1
    assert run.taken_back == 0
