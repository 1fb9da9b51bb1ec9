"""Growth of jobs into free capacity, and its redistribution by fair shares. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from jobs.elastic.policy.allocation import Standing
from jobs.elastic.policy.preemption import Claim, Level, Preemptor
from jobs.messages import elastic as messages

# The number of trainers of each job that are sorted at once.
_AHEAD = 16


def grow(standing: Standing) -> None:
    """Add one trainer at a time to the job with the smallest share, or the oldest of several such jobs."""
    free_capacity, jobs, limited = standing.free_capacity, standing.jobs, bool(standing.left)
    free_capacity.exact = False
    out: set[int] = set()
    for index in _turns(standing, out):
        job = jobs[index]
        allowed = not limited or standing.allowed(job.namespace, job.trainer)
        number = free_capacity.place(standing.shape[index]) if allowed else -1
        if number < 0:
            out.add(index)
            continue
        if limited:
            standing.count(job.namespace, job.trainer, -1)
        standing.give(index, number)


def _turns(standing: Standing, out: set[int]) -> Iterator[int]:
    """Yield the next job to grow, until all have their most or are ``out``.

    The shares after each of the next trainers are sorted for many trainers at once. At most ``_AHEAD`` trainers of a
    job are sorted, and the order is right for shares below the smallest one beyond those.
    """
    growing = [index for index in range(len(standing.jobs)) if standing.may_grow(index)]
    growing.sort(key=lambda index: standing.jobs[index].submitted)
    numbers, cost = np.array(growing, dtype=int), np.array([standing.cost[index] for index in growing])
    height = np.array([standing.height[index] for index in growing])
    most = np.array([standing.most[index] for index in growing])
    while len(numbers):
        end = np.min((height + _AHEAD) * cost)
        near = np.flatnonzero(height * cost < end)
        heights = height[near, None] + np.arange(_AHEAD)
        shares = heights * cost[near, None]
        taken = (shares < end) & (heights < most[near, None])
        order = np.argsort(shares[taken], kind="stable")
        for index in np.repeat(numbers[near], taken.sum(axis=1))[order].tolist():
            if index not in out:
                yield index
        height[near] += taken.sum(axis=1)
        stay = (height < most) & ~np.isin(numbers, list(out))
        numbers, cost, height, most = numbers[stay], cost[stay], height[stay], most[stay]


def even_out(standing: Standing, preemptor: Preemptor, newcomers: frozenset[int]) -> None:
    """Plan trainers for jobs below their fair share, taken from jobs above theirs.

    Fair shares are computed from the amounts in use: fragmentation of nodes makes those less than the sum of the nodes.
    """
    calm = [
        index
        for index in range(len(standing.jobs))
        if index not in newcomers and standing.may_grow(index) and not standing.recently(index, 1)
    ]
    if not calm:
        return
    standing.fair = standing.fair_of(standing.in_use())
    for index in sorted(calm, key=lambda each: (standing.share(each), each)):
        lacking = math.floor(standing.fair[index]) - standing.height[index]
        if lacking > max(1.0, standing.rules.slack * standing.fair[index]):
            above = (standing.height[index] + lacking) * standing.cost[index]
            beneficiary, namespace = messages.JOBS_BELOW_FAIR_SHARE(), standing.jobs[index].namespace
            claim = Claim(beneficiary, above=above, namespace=namespace)
            promised = len(preemptor.claim(standing.shape[index], lacking, (Level.SLACK,), claim))
            standing.planned[index] += promised
            standing.height[index] += promised
