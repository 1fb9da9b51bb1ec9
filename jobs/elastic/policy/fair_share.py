"""How many trainers each job could fairly have. Pure.

Fair is the largest weighted minimum: all shares grow together until something of the cluster is used up; those who need
none of it grow on. A share is what a job's trainers take of the resource of which they take most. All namespaces weigh
the same however many jobs they have; within one, each step of priority doubles the weight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobs.elastic.policy.model import Amounts, Job, total

# A trainer is worth its place while it adds this part of what the trainers before it do on average.
WORTH = 0.1
_HIGHEST_PRIORITY = 20
# What sums of amounts may be wrong by.
_EXACT = 1e-6
Floats = NDArray[np.float64]


def useful(job: Job) -> int:
    """The most trainers that make sense: those before the first that was measured to add next to nothing."""
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
    """The largest part of the cluster that one trainer takes."""
    return max((amount / there for amount, there in zip(need, capacity, strict=True) if there), default=0.0) or 1e-12


def servers(job: Job, trainers: float) -> int:
    """How many parameter servers a job begins with that will have about so many trainers."""
    each = job.core.trainers_per_server
    return job.core.servers if each is None else max(1, -(-round(trainers) // each))


def fair(jobs: Sequence[Job], most: Sequence[int], capacity: Amounts) -> list[float]:
    """Trainers of every job, between its least and ``most``. ``capacity``: what is there for all of them together."""
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
    """The most trainers that each could have if its namespace shared its limit fairly and nothing else were scarce."""
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
    """All that grow at the highest common level that fits. What they take is a line with a bend wherever one of them
    begins to grow and wherever one has its most."""
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
    """Which jobs need something of which less than one of their trainers is left."""
    touched: NDArray[np.bool_] = np.any((needs > 0) & (needs * 1e-3 >= left), axis=1)
    return touched


def _with_server(job: Job) -> Amounts:
    """What a trainer takes, with its part of a server where those are sized with the trainers."""
    each = job.core.trainers_per_server
    if each is None or job.started is not None:
        return job.trainer
    return Amounts(*(own + server // each for own, server in zip(job.trainer, job.core.server, strict=True)))


def fixed(job: Job) -> Amounts:
    """What the replicas of a job take whose number does not change."""
    if job.started is not None:
        cpu = memory = gpu = 0
        for each in job.held.values():
            cpu, memory, gpu = cpu + each[0], memory + each[1], gpu + each[2]
        return Amounts(cpu, memory, gpu)
    count = job.core.servers if job.core.trainers_per_server is None else 0
    return job.core.master.plus(job.core.server.times(count))
