"""A baseline: trainers by marginal gain, as Optimus has it. Pure.

After Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
sections 3.2 and 4.1. Every job has its least first, in the order in which they came. Then the one whose remaining time
one more trainer shortens most, for what that trainer takes of the cluster, gets one, again and again, until nobody
gains or nothing is left. How fast a job would be follows from its measured speeds by a model whose coefficients are
fitted by non-negative least squares. How much work is left the paper estimates from the curve of the loss; here it is
told exactly, and the speeds of small numbers of trainers are known beforehand: that is in its favour.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from statistics import fmean

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.policy.fair_share import dominant
from jobs.elastic.policy.model import Amounts, Cluster, Decision, Job


def optimus(cluster: Cluster, now: float) -> Decision:
    """How many trainers each has in the next period; who gets none waits, or is called back. Nodes are left open."""
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
    """Trainers by job; 0 where there is no room for the least."""
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
    """Put a job in line for one more than ``count`` trainers, if it gains by that."""
    left = typical if job.remaining is None else job.remaining
    once, more = fitted(job.speeds)
    gain = left * (_time(once, more, count) - _time(once, more, count + 1)) / dominant(job.trainer, capacity)
    if count < job.most and gain > 0:
        heapq.heappush(heap, (-gain, job.submitted, job.key))


def _time(once: float, more: float, count: int) -> float:
    """What a second of one trainer's work takes with ``count`` of them."""
    return (once + more * (count - 1)) / (once * count)


def fitted(speeds: Mapping[int, float]) -> tuple[float, float]:
    """``(once, more)``: n trainers are as fast as n / (once + more * (n - 1)), neither being negative.

    Least squares of n / speed over n - 1. With one measurement, or none, more trainers cost nothing.
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
    # The least squares lie on the border: all of it grows with the number. One trainer needs some time nevertheless.
    return min(y for _, y in points) * 1e-6, sum(x * y for x, y in points) / sum(x * x for x, _ in points)


def _least(job: Job) -> Amounts:
    fixed = job.core.master.plus(job.core.server.times(job.core.servers))
    return job.trainer.times(job.least).plus(fixed)
