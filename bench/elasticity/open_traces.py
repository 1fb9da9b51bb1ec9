"""E8, E9: mean completion time on open cluster traces beside other policies in the same simulator, and preemptions.

``traces`` beside this module has the workloads, for 64 or 20 GPUs; its README states their origin. All policies have
the same reaction time: they decide every 30 s and when a job comes. Pods take 20 to 40 s to start, and a stopped
trainer loses up to 30 s of its task. A job has the bounds of the trace under Regatta, Optimus and the published policy,
its submitted fixed number under Tiresias, and its most trainers under ``fixed``. The speeds of 1, 2, 4 and 8 trainers
are known to all of them beforehand; only Optimus gets the remaining work. Each seed is another draw of the traces with
noise or priorities.

E9 checks every decision of Regatta (``bench/elasticity/decision_checker.py``), with preemption and without.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

from bench.elasticity import derived_traces
from bench.elasticity.decision_checker import CheckedPolicy
from bench.report import Row
from bench.scale import scale
from jobs.elastic.policy import policy as ours
from jobs.elastic.policy.model import Policy
from jobs.elastic.policy.policy import Rules
from jobs.elastic.simulation import scenarios, traces
from jobs.elastic.simulation.metrics import Outcome
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Timing, Workload

FOLDER = Path(__file__).parent / "traces"
OPEN = ("half-3", "tuned-1", "tuned-6", "as-submitted-4", "double")
TRACES: Sequence[str] = scale((*OPEN, *derived_traces.FILES), ("half-3", "noisy-half-3"))
PEERS = ("tiresias", "optimus", "fixed", "published")
PREEMPTING = "regatta, preempting"
POLICIES: Mapping[str, Policy] = {
    **scenarios.POLICIES,
    PREEMPTING: partial(ours.decide, rules=Rules(preempts=True)),
}
TIMING = Timing(start=(20.0, 40.0), stop=(5.0, 15.0), interval=30.0, reaction=None, task=30.0)
PROFILED = (1, 2, 4, 8)
SEEDS = range(scale(3, 1))
MOST_STOPS = 1


@dataclass(frozen=True)
class Run:
    """The result of one simulation.

    ``preempted``: the most times that a job was stopped for the same other one. ``taken_back``: the number of changes
    that were taken back within the cool-down, without those for a waiting job or service.
    """

    outcome: Outcome
    preempted: int
    taken_back: int
    taken_back_for_waiting: int


def measure() -> Iterator[Row]:
    """Yield a row of E8 per trace, with the best other policy as peer, and the rows of E9. Print all policies."""
    cases = [(trace, name, seed) for trace in TRACES for name in ("regatta", PREEMPTING, *PEERS) for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = dict(zip(cases, pool.map(_run, cases), strict=True))
    heads = {"mean s": 9, "median": 9, "p99": 9, "wait s": 8, "GPUs %": 8}
    print(f"{'trace':<20}{'policy':<20}", *(f"{head:>{width}}" for head, width in heads.items()), sep="")
    for trace in TRACES:
        means = {}
        for name in ("regatta", PREEMPTING, *PEERS):
            outcomes = [runs[trace, name, seed].outcome for seed in SEEDS]
            means[name] = fmean(each.completion_mean or 0.0 for each in outcomes)
            print(f"{trace:<20}{name:<20}{_text(outcomes)}")
        best = min(PEERS, key=means.__getitem__)
        yield _e8(trace, means["regatta"], means[best], best)
    yield from _e9([run for (_, name, _), run in runs.items() if name in ("regatta", PREEMPTING)])


def _e8(trace: str, mean: float, peer: float, best: str) -> Row:
    case = f"{trace}: mean completion, s; best peer: {best}"
    return Row("E8", case, round(mean, 1), f"< {peer:.0f}", mean < peer, round(peer, 1), round(mean / peer, 2))


def _e9(runs: Sequence[Run]) -> Iterator[Row]:
    most, back = max(run.preempted for run in runs), sum(run.taken_back for run in runs)
    case = f"{len(runs)} runs of all traces: stops of a job for the same other one, at most"
    yield Row("E9", case, most, f"<= {MOST_STOPS}", most <= MOST_STOPS)
    yield Row("E9", "changes taken back within the cool-down, all runs", back, "0", back == 0)
    waiting = sum(run.taken_back_for_waiting for run in runs)
    print(f"E9: changes taken back within the cool-down for somebody who waits, which are not counted: {waiting}.")


def run(trace: str, name: str, seed: int) -> Run:
    checked = CheckedPolicy(POLICIES[name])
    outcome = simulate(workload(trace, seed), checked, TIMING, seed)
    return Run(outcome, checked.most_for_one, len(checked.taken_back), len(checked.taken_back_for_waiting))


def _run(case: tuple[str, str, int]) -> Run:
    return run(*case)


def workload(trace: str, seed: int = 0) -> Workload:
    """Return the workload of a trace. For a derived one each seed is another draw; seed 0 is its file."""
    cluster = FOLDER / derived_traces.CLUSTERS.get(trace, "cluster.json")
    with tempfile.TemporaryDirectory() as scratch:
        path = FOLDER / f"{trace}.csv"
        if seed and trace in derived_traces.FILES:
            path = Path(scratch) / path.name
            derived_traces.write(trace, path, seed)
        return replace(traces.workload(path, None, cluster, None), profiled=PROFILED)


def _text(outcomes: Sequence[Outcome]) -> str:
    times = sorted(each for outcome in outcomes for each in outcome.completions.values())
    mean, late = fmean(times), times[int(0.99 * (len(times) - 1))]
    wait, use = fmean(each.wait_mean for each in outcomes), 100 * fmean(each.utilisation for each in outcomes)
    return f"{mean:>9,.0f}{median(times):>9,.0f}{late:>9,.0f}{wait:>8,.0f}{use:>8.1f}"
