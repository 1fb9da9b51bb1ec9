"""Workloads of the two experiments that were published with the autoscaler of 2017. Pure.

The published cluster has 133 nodes with 2,348 cores and 13,665,210 MB; other pods take 2.15 % of the cores. The
distribution of the cores over the nodes was not published. Here all nodes are alike, which fits the raw data of jobs of
a fixed size best (88.5 % in use at the end, measured 88.7 %; over 550 s 82.0 %, measured 82.4 %). Gaps between
submissions, and the times to create, start and stop pods, are fitted to the same raw data (doc/edl/experiment/result of
PaddlePaddle/cloud): gaps of 12.8 s in the first experiment and 8 s in the second, 20 calls per second, 1 to 3 s to
start and to stop.

Three trainers, or one trainer and three servers, fit on such a node: under any policy a core or two of each node stay
empty. ``upper_bounds.py`` computes the resulting bounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from jobs.elastic.baselines import optimus, paddle_edl, tiresias
from jobs.elastic.policy import policy
from jobs.elastic.policy.model import Amounts, Core, Job, Node, Policy, Service
from jobs.elastic.simulation.workload import Arrival, Demand, Timing, Workload

NODES, CORES, MEMORY, OTHERS = 133, 2348, 13_665_210, 0.0215
TRAINER = Amounts(5000, 8590)
CORE = Core(master=Amounts(1000, 525), server=Amounts(4000, 5369), servers=10)
# If servers are sized by trainers: one of 4 cores for twenty trainers. (The published jobs had one for six.)
TRAINERS_PER_SERVER = 20
LEAST, MOST = 2, 60
NGINX = Amounts(3000, 3222)
WINDOW = 550.0
_STEPS = ((300, 90.0), (200, 90.0), (100, 90.0), (200, 90.0), (300, 90.0), (400, 120.0))

POLICIES: Mapping[str, Policy] = {
    "regatta": policy.decide,
    "published": paddle_edl.published,
    "fixed": paddle_edl.fixed,
    "tiresias": tiresias.tiresias,
    "optimus": optimus.optimus,
}
# The platform decides once per sweep. From an event to its decision it takes at most the period of the sweep (1 s) plus
# the duration of one, assumed to be 0.3 s.
REACTION = 1.3
# The same timing for all policies, so that the comparison does not depend on how soon they are called.
TIMING = Timing(reaction=REACTION)
# The published controller decided every 5 s and when a job came; this is the timing of the published measurements.
PUBLISHED_TIMING = Timing(reaction=None)


def cluster() -> list[Node]:
    each = Amounts(CORES * 1000 // NODES, MEMORY // NODES)
    return [Node(f"node-{number}", each, taken=Amounts(round(each.cpu * OTHERS))) for number in range(NODES)]


def published_1(seed: int, *, sized: bool = False) -> Workload:
    """Return the first experiment: twenty jobs of 2 to 60 trainers, submitted one after the other.

    ``sized``: servers are sized by trainers at launch.
    """
    return Workload(cluster(), _arrivals(20, 12.8, seed, _job(sized=sized)), window=WINDOW, until=WINDOW)


def published_2(seed: int, *, sized: bool = False) -> Workload:
    """Return the second experiment: six jobs, submitted with 15 trainers, and a service.

    The service goes from 400 replicas down to 100 and back.
    """
    arrivals = _arrivals(6, 8.0, seed, replace(_job(sized=sized), first=15))
    at, demands = arrivals[-1].at + 60.0, []
    for wanted, length in _STEPS:
        demands.append(Demand(at, "nginx", wanted))
        at += length
    return Workload(cluster(), arrivals, [Service("nginx", NGINX, 400)], demands, WINDOW, at)


SCENARIOS: Mapping[str, Callable[[int], Workload]] = {"published-1": published_1, "published-2": published_2}


def _job(*, sized: bool) -> Job:
    core = replace(CORE, trainers_per_server=TRAINERS_PER_SERVER) if sized else CORE
    return Job("mnist", LEAST, MOST, TRAINER, core)


def _arrivals(count: int, gap: float, seed: int, job: Job) -> list[Arrival]:
    chance = random.Random(seed)  # noqa: S311  a workload is no secret
    at, arrivals = 4.0, []
    for number in range(count):
        arrivals.append(Arrival(at, replace(job, key=f"{job.key}-{number}")))
        at += chance.uniform(gap - 1.0, gap + 1.0)
    return arrivals
