"""Fair number of trainers of each job, by weighted dominant resource fairness. Pure.

Fair means max-min: all shares grow together until a resource of the cluster is used up, and jobs that need none of it
grow on. The share of a job is the fraction that its trainers take of their dominant resource. All namespaces have the
same weight, however many jobs they have. Within one, each step of priority doubles the weight of a job.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobs.elastic.policy.model import Amounts, Job, total

# A further trainer is useful while it adds at least this fraction of the average speed of the trainers before it.
WORTH = 0.1
_HIGHEST_PRIORITY = 20
# Tolerance of sums of amounts.
_EXACT = 1e-6
Floats = NDArray[np.float64]


def useful(job: Job) -> int:
    """Return the most trainers that are useful: those before the first one measured to add less than ``WORTH``."""
    measured = sorted((count, speed) for count, speed in job.speeds.items() if count > 0)
    for (few, slow), (many, fast) in pairwise(measured):
        if fast - slow < WORTH * slow / few * (many - few):
            return max(job.least, min(job.most, few))
    return max(job.least, job.most)


def weights(jobs: Sequence[Job]) -> list[float]:
    by_namespace: dict[str, float] = defaultdict(float)
    own = [2.0 ** max(-_HIGHEST_PRIORITY, min(_HIGHEST_PRIORITY, job.priority)) for job in jobs]
    for job, weight in zip(jobs, own, strict=True):
        by_namespace[job.namespace] += weight
    return [weight / by_namespace[job.namespace] for job, weight in zip(jobs, own, strict=True)]


def dominant(need: Amounts, capacity: Amounts) -> float:
    """Return the largest fraction of any resource of the cluster that one trainer takes."""
    return max((amount / there for amount, there in zip(need, capacity, strict=True) if there), default=0.0) or 1e-12


def servers(job: Job, trainers: float) -> int:
    """Return the number of parameter servers that a job with about ``trainers`` trainers begins with."""
    each = job.core.trainers_per_server
    return job.core.servers if each is None else max(1, -(-round(trainers) // each))


def fair(jobs: Sequence[Job], most: Sequence[int], capacity: Amounts) -> list[float]:
    """Return the fair number of trainers of every job, between its least and ``most``.

    ``capacity``: the amounts for all jobs together.
    """
    if not jobs:
        return []
    needs = np.array([_with_server(job) for job in jobs], dtype=float)
    least, upper = np.array([job.least for job in jobs], dtype=float), np.array(most, dtype=float)
    pace = np.array(weights(jobs)) / np.array([dominant(job.trainer, capacity) for job in jobs])
    left = np.array(capacity.minus(total(fixed(job) for job in jobs)), dtype=float)
    size, growing = least.copy(), np.ones(len(jobs), dtype=bool)
    for _ in range(len(Amounts._fields)):
        size = _level(size, growing, pace, (least, upper), needs, left)
        growing &= ~_touches(needs, left - size @ needs)
    return [float(each) for each in size]


def within_limits(jobs: Sequence[Job], most: Sequence[int], limits: Mapping[str, Amounts]) -> list[int]:
    """Return the most trainers of each job if its namespace shared its limit fairly and nothing else were scarce."""
    result = list(most)
    for namespace, limit in limits.items():
        indices = [index for index, job in enumerate(jobs) if job.namespace == namespace]
        inside = fair([jobs[index] for index in indices], [most[index] for index in indices], limit)
        for index, share in zip(indices, inside, strict=True):
            result[index] = max(jobs[index].least, min(most[index], math.floor(share + 1e-6)))
    return result


def _level(
    size: Floats, growing: NDArray[np.bool_], pace: Floats, bounds: tuple[Floats, Floats], needs: Floats, left: Floats
) -> Floats:
    """Return the sizes of all growing jobs at the highest common level that fits.

    Their usage is piecewise linear in the level, with a bend where a job begins to grow and where it reaches its most.
    """
    least, upper, own, need = bounds[0][growing], bounds[1][growing], pace[growing], needs[growing]
    taken = least @ need + size[~growing] @ needs[~growing]
    if not growing.any() or np.any(taken > left + _EXACT):
        return size
    bends = np.concatenate((least / own, upper / own))
    order = np.argsort(bends, kind="stable")
    bends, steepness = bends[order], need * own[:, None]
    slopes = np.cumsum(np.concatenate((steepness, -steepness))[order], axis=0)
    uses = taken + np.cumsum(slopes[:-1] * np.diff(bends)[:, None], axis=0)
    too_much = np.any(uses > left + _EXACT, axis=1)
    level = bends[-1]
    if too_much.any():
        before = int(np.argmax(too_much))
        used, slope = (uses[before - 1] if before else taken), slopes[before]
        rising = slope > 0
        level = bends[before] + float(np.min((left[rising] - used[rising]) / slope[rising]))
    return np.where(growing, np.clip(level * pace, *bounds), size)


def _touches(needs: Floats, left: Floats) -> NDArray[np.bool_]:
    """Return which jobs need a resource of which next to nothing (a thousandth of a trainer) is left."""
    touched: NDArray[np.bool_] = np.any((needs > 0) & (needs * 1e-3 >= left), axis=1)
    return touched


def _with_server(job: Job) -> Amounts:
    """Return the amounts of a trainer, plus its part of a server if servers are sized by the trainers."""
    each = job.core.trainers_per_server
    if each is None or job.started is not None:
        return job.trainer
    return Amounts(*(own + server // each for own, server in zip(job.trainer, job.core.server, strict=True)))


def fixed(job: Job) -> Amounts:
    """Return the amounts of the replicas of a job whose number does not change."""
    if job.started is not None:
        cpu = memory = gpu = 0
        for each in job.held.values():
            cpu, memory, gpu = cpu + each[0], memory + each[1], gpu + each[2]
        return Amounts(cpu, memory, gpu)
    count = job.core.servers if job.core.trainers_per_server is None else 0
    return job.core.master.plus(job.core.server.times(count))
