"""Baseline: allocation of trainers by marginal gain, as in Optimus. Pure.

After Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
sections 3.2 and 4.1. Jobs get their least first, in the order of arrival. Then one more trainer goes to the job whose
remaining time it shortens most per share of the cluster, again and again, until no job gains or no capacity is left.
The speed of a job is predicted from its measured speeds by a model whose coefficients are fitted by non-negative least
squares. The paper estimates the remaining work from the loss curve. Here it is given exactly, and the speeds of small
numbers of trainers are known beforehand: that favours this baseline.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from statistics import fmean

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.policy.fair_share import dominant
from jobs.elastic.policy.model import Amounts, Cluster, Decision, Job


def optimus(cluster: Cluster, now: float) -> Decision:
    """Return the decision for the next period. A job without trainers waits or is preempted.

    The choice of nodes is left to the scheduler of the cluster.
    """
    numbers = allot(cluster)
    running = [job for job in cluster.jobs if job.started is not None]
    changes = {job.key: numbers[job.key] - job.size for job in running if numbers[job.key]}
    return Decision(
        targets=numbers,
        launches={
            job.key: paddle_edl.launch(job, numbers[job.key])
            for job in cluster.jobs
            if job.started is None and numbers[job.key]
        },
        grants={key: {"": change} for key, change in changes.items() if change > 0},
        victims={key: {"": -change} for key, change in changes.items() if change < 0},
        preempted={job.key: "" for job in running if not numbers[job.key]},
    )


def allot(cluster: Cluster) -> dict[str, int]:
    """Return the trainers by job; 0 if its least does not fit."""
    capacity = left = paddle_edl.for_jobs(cluster)
    numbers = {job.key: 0 for job in cluster.jobs}
    heap: list[tuple[float, float, str]] = []
    jobs = {job.key: job for job in cluster.jobs}
    known = [job.remaining for job in cluster.jobs if job.remaining is not None]
    typical = fmean(known) if known else 1.0
    for job in sorted(cluster.jobs, key=lambda each: (each.submitted, each.key)):
        after = left.minus(_least(job))
        if min(after) >= 0:
            left, numbers[job.key] = after, job.least
            _offer(heap, job, job.least, typical, capacity)
    while heap:
        _, _, key = heapq.heappop(heap)
        after = left.minus(jobs[key].trainer)
        if min(after) >= 0:
            left, numbers[key] = after, numbers[key] + 1
            _offer(heap, jobs[key], numbers[key], typical, capacity)
    return numbers


def _offer(heap: list[tuple[float, float, str]], job: Job, count: int, typical: float, capacity: Amounts) -> None:
    """Add a job to the heap for one more than ``count`` trainers, if it gains by that."""
    left = typical if job.remaining is None else job.remaining
    once, more = fitted(job.speeds)
    gain = left * (_time(once, more, count) - _time(once, more, count + 1)) / dominant(job.trainer, capacity)
    if count < job.most and gain > 0:
        heapq.heappush(heap, (-gain, job.submitted, job.key))


def _time(once: float, more: float, count: int) -> float:
    """Return the seconds that ``count`` trainers take for one second of a single trainer's work."""
    return (once + more * (count - 1)) / (once * count)


def fitted(speeds: Mapping[int, float]) -> tuple[float, float]:
    """Return ``(once, more)``, both non-negative: n trainers have the speed n / (once + more * (n - 1)).

    A least-squares fit of n / speed over n - 1. With at most one measurement, further trainers cost nothing.
    """
    points = [(count - 1.0, count / speed) for count, speed in speeds.items() if count > 0 and speed > 0]
    if not points:
        return 1.0, 0.0
    across, up = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - across) ** 2 for x, _ in points)
    slope = sum((x - across) * (y - up) for x, y in points) / spread if spread else 0.0
    if slope <= 0:
        return up, 0.0
    once = up - slope * across
    if once > 0:
        return once, slope
    # The constrained fit has ``once`` = 0. A tiny positive value keeps the time of one trainer above zero.
    return min(y for _, y in points) * 1e-6, sum(x * y for x, y in points) / sum(x * x for x, _ in points)


def _least(job: Job) -> Amounts:
    fixed = job.core.master.plus(job.core.server.times(job.core.servers))
    return job.trainer.times(job.least).plus(fixed)
