"""The open traces are whole, and what the benchmark says of them holds on the smallest."""

from __future__ import annotations

import pytest

from bench import open_traces


@pytest.mark.parametrize(
    ("trace", "jobs"), [("half-3", 80), ("tuned-1", 160), ("tuned-6", 160), ("as-submitted-4", 160), ("double", 320)]
)
def test_a_trace_has_all_its_jobs_within_eight_hours_and_each_fits(trace: str, jobs: int) -> None:
    workload = open_traces.workload(trace)
    assert len(workload.arrivals) == jobs
    assert workload.arrivals[-1].at < 8 * 3600
    assert sum(node.allocatable.gpu for node in workload.nodes) == 64
    assert all(1 <= arrival.job.first <= arrival.job.most <= 64 for arrival in workload.arrivals)


def test_jobs_are_done_sooner_than_under_least_attained_service_and_marginal_gain() -> None:
    outcomes = {policy: open_traces.run("half-3", policy, 0) for policy in open_traces.POLICIES}
    means = {policy: outcome.completion_mean for policy, outcome in outcomes.items()}
    assert all(len(outcome.completions) == 80 for outcome in outcomes.values())
    assert means["regatta"] is not None
    assert means["regatta"] < (means["tiresias"] or 0.0)
    assert means["regatta"] < (means["optimus"] or 0.0)
