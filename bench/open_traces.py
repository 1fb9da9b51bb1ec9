"""E8: mean job completion time on open cluster traces, beside Tiresias and Optimus in the same simulator.

``bench/traces`` has the workloads, for 16 nodes with 4 GPUs; its README says where they come from. All policies decide
every 30 s and when a job comes, on pods that take 20 to 40 s to start; whoever is stopped loses up to 30 s of its task.
A job has the bounds of the trace under ours and Optimus, and its own fixed number under Tiresias. The speeds of 1, 2, 4
and 8 trainers are known to all of them beforehand; how much work is left is told to Optimus alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from bench.report import Row
from jobs.elastic import scenarios, traces
from jobs.elastic.figures import Outcome
from jobs.elastic.simulator import Timing, Workload, simulate

FOLDER = Path(__file__).parent / "traces"
TRACES = ("half-3", "tuned-1", "tuned-6", "as-submitted-4", "double")
POLICIES = ("regatta", "tiresias", "optimus")
TIMING = Timing(start=(20.0, 40.0), stop=(5.0, 15.0), interval=30.0, reaction=None, task=30.0)
PROFILED = (1, 2, 4, 8)
SEEDS = range(3)


def measure() -> Iterator[Row]:
    """A row for each trace: ours, and as peer the better of the two others. Prints all three."""
    heads = {"mean s": 9, "median": 9, "p99": 9, "wait s": 8, "GPUs %": 8}
    print(f"{'trace':<16}{'policy':<11}", *(f"{head:>{width}}" for head, width in heads.items()), sep="")
    for trace in TRACES:
        runs = {name: [run(trace, name, seed) for seed in SEEDS] for name in POLICIES}
        for name, outcomes in runs.items():
            print(f"{trace:<16}{name:<11}{_told(outcomes)}")
        means = {name: fmean(each.completion_mean or 0.0 for each in outcomes) for name, outcomes in runs.items()}
        ours, best = means["regatta"], min(means["tiresias"], means["optimus"])
        case = f"{trace}: mean completion, s; peer: better of two"
        yield Row("E8", case, round(ours, 1), f"< {best:.0f}", ours < best, round(best, 1), round(ours / best, 2))


def run(trace: str, policy: str, seed: int) -> Outcome:
    return simulate(workload(trace), scenarios.POLICIES[policy], TIMING, seed)


def workload(trace: str) -> Workload:
    return replace(traces.workload(FOLDER / f"{trace}.csv", None, FOLDER / "cluster.json", None), profiled=PROFILED)


def _told(outcomes: list[Outcome]) -> str:
    times = sorted(each for outcome in outcomes for each in outcome.completions.values())
    mean, late = fmean(times), times[int(0.99 * (len(times) - 1))]
    wait, use = fmean(each.wait_mean for each in outcomes), 100 * fmean(each.utilisation for each in outcomes)
    return f"{mean:>9,.0f}{median(times):>9,.0f}{late:>9,.0f}{wait:>8,.0f}{use:>8.1f}"
