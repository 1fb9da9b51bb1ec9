"""Growth of jobs into free capacity, and its redistribution by fair shares. Pure.

Growth is progressive filling, the algorithm of dominant resource fairness (Ghodsi et al., NSDI 2011).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

import numpy as np

from jobs.elastic.policy.allocation import Allocation
from jobs.elastic.policy.preemption import Claim, Level, Preemptor
from jobs.elastic.policy.working_state import JobState
from jobs.messages import elastic as messages

# The number of trainers of each job that are sorted at once.
_AHEAD = 16


def grow(allocation: Allocation) -> None:
    """Add one trainer at a time to the job with the smallest share, or the oldest of several such jobs."""
    free_capacity, limits = allocation.free_capacity, allocation.remaining_limits
    limited, place, start = bool(limits.remaining), free_capacity.place, allocation.start
    free_capacity.exact = False
    full: set[int] = set()
    for state in _smallest_first(allocation, full):
        job = state.job
        allowed = not limited or limits.allow(job.namespace, job.trainer)
        node = place(state.shape) if allowed else None
        if node is None:
            full.add(state.index)
            continue
        if limited:
            limits.take(job.namespace, job.trainer)
        start(state, node)


def _smallest_first(allocation: Allocation, full: set[int]) -> Iterator[JobState]:
    """Yield the next job to grow, until all have their most or are ``full`` (indices; the caller adds to it).

    The shares after each of the next trainers are sorted for many trainers at once. At most ``_AHEAD`` trainers of a
    job are sorted, and the order is right for shares below the smallest one beyond those.
    """
    jobs = allocation.jobs
    growing = [state for state in jobs if allocation.may_grow(state)]
    growing.sort(key=lambda state: state.job.submitted)
    indices, cost = np.array([state.index for state in growing], dtype=int), np.array([s.cost for s in growing])
    height = np.array([state.target for state in growing])
    most = np.array([state.useful for state in growing])
    while len(indices):
        end = np.min((height + _AHEAD) * cost)
        near = np.flatnonzero(height * cost < end)
        heights = height[near, None] + np.arange(_AHEAD)
        shares = heights * cost[near, None]
        taken = (shares < end) & (heights < most[near, None])
        order = np.argsort(shares[taken], kind="stable")
        for index in np.repeat(indices[near], taken.sum(axis=1))[order].tolist():
            if index not in full:
                yield jobs[index]
        height[near] += taken.sum(axis=1)
        stay = (height < most) & ~np.isin(indices, list(full))
        indices, cost, height, most = indices[stay], cost[stay], height[stay], most[stay]


def even_out(allocation: Allocation, preemptor: Preemptor, newcomers: Container[JobState]) -> None:
    """Plan trainers for jobs below their fair share, taken from jobs above theirs.

    Fair shares are computed from the amounts in use: fragmentation of nodes makes those less than the sum of the nodes.
    """
    calm = [
        state
        for state in allocation.jobs
        if state not in newcomers and allocation.may_grow(state) and state.recent_change <= 0
    ]
    if not calm:
        return
    allocation.set_fair_shares(allocation.in_use())
    for state in sorted(calm, key=lambda each: (each.share, each.index)):
        lacking = math.floor(state.fair) - state.target
        if lacking > max(1.0, allocation.rules.slack * state.fair):
            above = (state.target + lacking) * state.cost
            claim = Claim(messages.JOBS_BELOW_FAIR_SHARE(), above=above, namespace=state.job.namespace)
            promised = len(preemptor.claim(state.shape, lacking, (Level.SLACK,), claim))
            state.planned += promised
            state.target += promised
