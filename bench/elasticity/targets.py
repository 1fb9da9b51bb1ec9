"""E1 to E7: the published experiments under Regatta's policy, the published one and fixed sizes; decision times.

Each runs with ten seeds, because ten rounds were published. A row is the mean over them, or the worst if it says "all".
Peers are the published figures. The results of the published policy and of fixed sizes in the same simulator are
printed above the rows. All decide with the platform's reaction time (``scenarios.REACTION``: period plus duration of a
sweep). E2 and E3 have an upper bound for any policy on these nodes, and E5 one for any policy that cannot foresee the
demand of the service (``jobs/elastic/simulation/upper_bounds.py``).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, linear_regression, median

from bench.report import Row
from jobs.elastic.policy import policy
from jobs.elastic.policy.model import Amounts, Cluster, Core, Job, Node, Service
from jobs.elastic.simulation import scenarios, upper_bounds
from jobs.elastic.simulation.metrics import Outcome
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Workload

SEEDS = range(10)
WAIT_GOAL, USE_GOAL, WORK_GOAL, JAIN_GOAL, USE_2_GOAL, RECOVERY_GOAL = 20.0, 0.995, 0.97, 0.9, 0.99, 15.0
DECISION_GOAL_MS, LARGE_DECISION_GOAL = 10.0, 1.0
_DRAWING = Path("build/bench/E7.html")
PUBLISHED_WAIT, PUBLISHED_USE, PUBLISHED_USE_2, PUBLISHED_JAIN = 46.5, 80.6, 83.5, 0.44
PUBLISHED_RECOVERY, FIXED_SECONDS = 117.0, 177_551.0
_SHAPES = (
    Amounts(1000, 4000),
    Amounts(2000, 8000),
    Amounts(4000, 8000),
    Amounts(4000, 16000, 1),
    Amounts(8000, 32000, 2),
)


def measure() -> list[Row]:
    first, second = _runs("regatta", scenarios.published_1), _runs("regatta", scenarios.published_2)
    sized = _runs("regatta", partial(scenarios.published_1, sized=True))
    _compare()
    return [*_first(first, sized), *_second(second), *_decisions()]


def _runs(name: str, scenario: Callable[[int], Workload]) -> list[Outcome]:
    return [simulate(scenario(seed), scenarios.POLICIES[name], scenarios.TIMING, seed) for seed in SEEDS]


def _first(outcomes: list[Outcome], sized: list[Outcome]) -> Iterator[Row]:
    wait, use = fmean(each.wait_mean for each in outcomes), 100 * fmean(each.utilisation for each in outcomes)
    workloads = [scenarios.published_1(seed) for seed in SEEDS]
    limit = 100 * fmean(upper_bounds.utilisation(each, scenarios.TIMING) for each in workloads)
    all_cores, packed = (
        map(upper_bounds.trainer_seconds, workloads),
        map(upper_bounds.packed_trainer_seconds, workloads),
    )
    cores, whole, done = fmean(all_cores), fmean(packed), fmean(each.trainer_seconds for each in outcomes)
    seconds, even = fmean(each.trainer_seconds for each in sized), fmean(each.jain for each in outcomes)
    yield _at_most("E1", "20 jobs: mean wait for the first trainer, s", wait, WAIT_GOAL, PUBLISHED_WAIT)
    yield _at_least("E2", "20 jobs: % of the cores in use", use, USE_GOAL * limit, PUBLISHED_USE, limit)
    yield _at_least("E3", "useful trainer-s, part of what whole replicas leave", done / whole, WORK_GOAL, None, 1)
    print(f"E3: of what all cores would do that is {done / cores:.3f}; whole replicas leave {whole / cores:.3f} of it.")
    yield _at_least("E3", "trainer-seconds, a server for 20 trainers", seconds, FIXED_SECONDS, FIXED_SECONDS)
    yield _at_least("E4", "20 jobs: Jain fairness of trainers at 550 s", even, JAIN_GOAL, PUBLISHED_JAIN)


def _second(outcomes: list[Outcome]) -> Iterator[Row]:
    use = 100 * fmean(each.utilisation for each in outcomes)
    limit = 100 * fmean(upper_bounds.utilisation_beside_a_service(scenarios.published_2(seed), seed) for seed in SEEDS)
    slowest = max(each.service_recovery_max or 0.0 for each in outcomes)
    yield _at_least(
        "E5", "with a service: % in use (bound: without foresight)", use, USE_2_GOAL * limit, PUBLISHED_USE_2, limit
    )
    yield _at_most("E6", "slowest 100 replicas of the service, all runs, s", slowest, RECOVERY_GOAL, PUBLISHED_RECOVERY)
    back = sum(each.service_full_recovery or False for each in outcomes)
    yield _at_least("E6", "runs with the service back at 400", back, len(outcomes), 0)


def _decisions() -> Iterator[Row]:
    yield _at_most("E7", "a decision, 20 jobs on 133 nodes, ms", 1000 * seconds_to_decide(20, 133), DECISION_GOAL_MS)
    for jobs in (2_500, 5_000, 10_000):
        nodes = jobs // 2
        yield _at_most(
            "E7",
            f"a decision, {jobs:,} jobs on {nodes:,} nodes, s",
            seconds_to_decide(jobs, nodes),
            LARGE_DECISION_GOAL,
        )
    # Growth is measured in CPU time, because other load on the machine would distort wall-clock times.
    lines = {
        name: [seconds_to_decide(*size, clock=time.process_time) for size in sizes] for name, sizes in _LINES.items()
    }
    for name, sizes in _LINES.items():
        power = _power([max(size) for size in sizes], lines[name])
        yield _at_most("E7", f"grows with {_GROWING[name]} to the power of", power, 1.1)
    _draw(lines)


_STEPS_OF_SIZE = (1_250, 2_500, 5_000, 10_000)
# The sizes (jobs, nodes) at which decisions are timed: one of them grows, or both do.
_LINES = {
    "jobs": [(jobs, 2_500) for jobs in _STEPS_OF_SIZE],
    "nodes": [(2_500, nodes) for nodes in _STEPS_OF_SIZE],
    "both": [(jobs, jobs // 2) for jobs in _STEPS_OF_SIZE],
}
_GROWING = {"jobs": "jobs (2,500 nodes)", "nodes": "nodes (2,500 jobs)", "both": "both (2 jobs a node)"}


def _power(sizes: list[int], seconds: list[float]) -> float:
    """Return p of ``seconds ~ size ** p``, by least squares of the logarithms: 1 is linear, n log n is 1.12 here."""
    return linear_regression([math.log(size) for size in sizes], [math.log(each) for each in seconds]).slope


def _draw(lines: dict[str, list[float]]) -> None:
    """Draw ``build/bench/E7.html``: the time of a decision by size, with the straight line through the largest."""
    from plotly.graph_objects import Figure, Scatter  # takes a second to load

    page = Figure()
    for name, sizes in _LINES.items():
        x, y = [max(size) for size in sizes], [1000 * each for each in lines[name]]
        page.add_trace(Scatter(x=x, y=y, mode="lines+markers", name=_GROWING[name]))
        straight = {"dash": "dot", "width": 1}
        page.add_trace(Scatter(x=[0, x[-1]], y=[0, y[-1]], mode="lines", line=straight, showlegend=False))
    page.update_layout(xaxis_title="how many", yaxis_title="CPU ms a decision", yaxis_rangemode="tozero")
    _DRAWING.parent.mkdir(parents=True, exist_ok=True)
    page.write_html(_DRAWING, include_plotlyjs=True)


def seconds_to_decide(jobs: int, nodes: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median time of five decisions about ``crowd``."""
    cluster = crowd(jobs, nodes)
    times = []
    for _ in range(5):
        begun = clock()
        policy.decide(cluster, 1000.0)
        times.append(clock() - begun)
    return median(times)


def crowd(jobs: int, nodes: int) -> Cluster:
    """Return a cluster with jobs of five shapes in fifty namespaces, nodes with and without GPUs, and a grown service.

    A tenth of the jobs wait. The others have grown into a part of the capacity.
    """
    chance = random.Random(7)
    there = [Node(f"n{number}", Amounts(64_000, 256_000, 8 * (number % 2))) for number in range(nodes)]
    free = [list(node.allocatable) for node in there]
    service = Service("web", Amounts(2000, 4000), nodes // 20, history=((0.0, 0), (990.0, nodes // 20)))
    return Cluster(there, [_job(number, chance, free) for number in range(jobs)], [service])


def _job(number: int, chance: random.Random, free: list[list[int]]) -> Job:
    need, on = chance.choice(_SHAPES), dict[str, int]()
    job = Job(f"j{number}", 1, 16, need, Core(server=Amounts(1000, 2000), servers=2), namespace=f"t{number % 50}")
    for _ in range(chance.randint(1, 8) if chance.random() > 0.1 else 0):
        at = chance.randrange(len(free))
        if all(left >= amount for left, amount in zip(free[at], need, strict=True)):
            free[at] = [left - amount for left, amount in zip(free[at], need, strict=True)]
            on[f"n{at}"] = on.get(f"n{at}", 0) + 1
    job = replace(job, priority=chance.choice((0, 0, 1)), submitted=float(number))
    return replace(job, started=0.0, running=sum(on.values()), trainers=on) if on else job


def _compare() -> None:
    """Print the results of all policies in the same simulator, as means over the seeds."""
    heads = {"use %": 8, "wait s": 8, "never": 7, "trainer-s": 11, "Jain": 6, "service s": 11, "back": 6}
    print(f"{'case':<6}{'policy':<11}", *(f"{head:>{width}}" for head, width in heads.items()), sep="")
    for title, scenario in scenarios.SCENARIOS.items():
        for name in ("regatta", "published", "fixed"):
            runs = _runs(name, scenario)
            slowest = max(each.service_recovery_max or 0.0 for each in runs)
            back = sum(each.service_full_recovery or False for each in runs)
            figures = (100 * fmean(each.utilisation for each in runs), fmean(each.wait_mean for each in runs))
            never, seconds = fmean(each.never_started for each in runs), fmean(each.trainer_seconds for each in runs)
            text = f"{figures[0]:>8.2f}{figures[1]:>8.1f}{never:>7.1f}{seconds:>11,.0f}"
            print(f"{title[-1]:<6}{name:<11}{text}{fmean(each.jain for each in runs):>6.2f}{slowest:>11.1f}{back:>6}")


def _at_least(
    row: str, case: str, value: float, goal: float, peer: float | None = None, bound: float | None = None
) -> Row:
    ratio, most = round(value / peer, 2) if peer else None, None if bound is None else round(bound, 3)
    return Row(row, case, round(value, 3), f">= {goal:.6g}", value >= goal, peer, ratio, most)


def _at_most(row: str, case: str, value: float, goal: float, peer: float | None = None) -> Row:
    ratio = round(value / peer, 2) if peer else None
    return Row(row, case, round(value, 4), f"<= {goal:g}", value <= goal, peer, ratio)
