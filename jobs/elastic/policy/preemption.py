"""Preemption: places for replicas, for which trainers stop where that costs least. Pure.

Victims are chosen in the order of Kubernetes' scheduler: the lowest priority first. Among equal priorities the largest
share comes first, then the youngest checkpoint.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from jobs.elastic.policy.allocation import Allocation, first_victim
from jobs.elastic.policy.model import Job
from jobs.elastic.policy.placement import slots
from jobs.elastic.policy.working_state import JobState, NodeState, Shape


class Level(IntEnum):
    """The size down to which jobs give up trainers."""

    SLACK = 0  # their fair share, but not jobs whose number has just changed
    SHARE = 1
    LEAST = 2


GENTLE, ANY = (Level.SHARE, Level.LEAST), (Level.LEAST,)
# The number of nodes that are compared for the cheapest preemption.
_COMPARED = 200
_MOST_VICTIMS_AT_ONCE = 8
# Minus the replicas that fit per stopped trainer; then minus the cores left on the node afterwards, because cores that
# are left on one node are useful to the next replica.
_Cost = tuple[float, int]
_Pool = list[tuple[_Cost, int]]


@dataclass(frozen=True)
class Claim:
    """The purpose of a preemption.

    ``beneficiary``: its name for messages. ``below``: only jobs of a lower priority give up trainers; None: all.
    ``above``: only jobs that keep at least this share give up trainers, so that every step is fairer and the steps end.
    ``namespace``: the one whose limit it counts against; None: none.
    """

    beneficiary: str
    below: int | None = None
    above: float = 0.0
    namespace: str | None = None


class Preemptor:
    """Places for the replicas of claims, at the cost of jobs above the level that a claim allows.

    Invariant: a job keeps at least its ``least``, except one that stops whole (``Allocation.preempt``). The nodes that
    were searched are kept by shape and level for the whole decision, so that no claim reads all nodes again.
    """

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._pools: dict[tuple[Shape, Level, int | None], tuple[Iterator[NodeState], _Pool]] = {}

    def claim(self, shape: Shape, count: int, levels: Sequence[Level], claim: Claim) -> list[NodeState]:
        """Return up to ``count`` places, for which jobs give up trainers down to each of the levels in turn."""
        allocation, placed = self._allocation, list[NodeState]()
        limits, namespace = allocation.remaining_limits, claim.namespace
        while len(placed) < count:
            if not limits.allow(namespace, shape[0]):
                if not any(self._make_allowed(level, claim) for level in levels):
                    break
                continue
            node = allocation.free_capacity.place(shape)
            if node is not None:
                placed.append(node)
                limits.take(namespace, shape[0])
                allocation.transaction.record(partial(allocation.give_back, node, shape[0], namespace))
            elif not any(self._evict(shape, count - len(placed), level, claim) for level in levels):
                break
        return placed

    def stoppable_for_service(self, priority: int) -> list[JobState]:
        """Return the jobs that may stop whole for a service of this priority."""
        return self._least_loss(lambda job, _started: job.priority < priority)

    def stoppable_for(self, newcomer: Job) -> list[JobState]:
        """Return the jobs that may stop whole for a newcomer.

        These are the jobs of its namespace that began before it came and that it would go before had they waited since
        they began. So a job stops for a newcomer at most once: when the job begins again, that is after the newcomer
        came. No job stops for one that was itself stopped before.
        """
        if newcomer.requeued is not None:
            return []
        head_start = self._allocation.rules.head_start

        def goes_before(job: Job, started: float) -> bool:
            gained = (newcomer.priority - job.priority) * head_start
            return job.namespace == newcomer.namespace and 0 <= newcomer.submitted - started < gained

        return self._least_loss(goes_before)

    def _least_loss(self, may_stop: Callable[[Job, float], bool]) -> list[JobState]:
        """Return the jobs that ``may_stop`` and have run for ``Rules.shortest_run``.

        They are sorted by priority, then by the work that is lost since their last checkpoint.
        """
        allocation, rules = self._allocation, self._allocation.rules
        may = [
            state
            for state in allocation.jobs
            if rules.preempts
            and state.job.started is not None
            and state not in allocation.preempted
            and allocation.now - state.job.started >= rules.shortest_run
            and may_stop(state.job, state.job.started)
        ]
        return sorted(may, key=lambda each: (each.job.priority, each.job.checkpoint_age * each.size, -each.index))

    def _make_allowed(self, level: Level, claim: Claim) -> bool:
        """Stop one trainer of the claim's own namespace. Return False if none may stop."""
        own = self._allocation.of_namespace(claim.namespace or "")
        victim = first_victim(state for state in own if state.by_node and _spare(state, level, claim) > 0)
        if victim is not None:
            self._allocation.stop(victim, victim.fullest_node(), claim.beneficiary)
        return victim is not None

    def _evict(self, shape: Shape, wanted: int, level: Level, claim: Claim) -> bool:
        """Stop trainers on the node that needs fewest for a replica of this shape. Return False if none qualifies."""
        nodes = self._allocation.free_capacity.nodes
        unsearched, pool = self._pools.setdefault((shape, level, claim.below), (iter(nodes), []))
        _fill(unsearched, pool, shape, level, claim)
        while pool:
            cost, number = heapq.heappop(pool)
            victims, fresh = _cheapest(nodes[number], shape, wanted, level, claim)
            if not victims:
                continue
            heapq.heappush(pool, (fresh, number))
            if pool[0][0] < fresh != cost:
                continue
            for victim in victims:
                self._allocation.stop(victim, nodes[number], claim.beneficiary)
            return True
        return False


def _fill(unsearched: Iterator[NodeState], pool: _Pool, shape: Shape, level: Level, claim: Claim) -> None:
    """Add further nodes to the pool until there are enough to compare."""
    for node in unsearched:
        if node.jobs and node.taints <= shape[1]:
            victims, cost = _cheapest(node, shape, _MOST_VICTIMS_AT_ONCE, level, claim)
            if victims:
                heapq.heappush(pool, (cost, node.number))
                if len(pool) >= _COMPARED:
                    return


def _cheapest(node: NodeState, shape: Shape, wanted: int, level: Level, claim: Claim) -> tuple[list[JobState], _Cost]:
    """Return the jobs whose trainers stop on a node so that most replicas fit per trainer, and the cost."""
    best: tuple[list[JobState], _Cost] = ([], (0.0, 0))
    victims: list[JobState] = []
    freed = [0, 0, 0]
    for state in _candidates(node, level, claim):
        victims.append(state)
        need = state.job.trainer
        freed = [freed[0] + need[0], freed[1] + need[1], freed[2] + need[2]]
        fitting = min(wanted, slots(node, freed, shape[0]))
        cost = (-fitting / len(victims), shape[0].cpu * fitting - node.soon[0] - freed[0])
        if fitting > 0 and cost < best[1]:
            best = (list(victims), cost)
    return best


def _candidates(node: NodeState, level: Level, claim: Claim) -> Iterator[JobState]:
    """Yield the jobs on a node in the order of preemption, once for each trainer that they may give up there."""
    candidates = []
    for state in node.jobs:
        job = state.job
        if claim.below is None or job.priority < claim.below:
            spare = _spare(state, level, claim)
            for nth in range(min(spare, state.by_node.get(node, 0), _MOST_VICTIMS_AT_ONCE)):
                share = (state.size - nth) * state.cost
                candidates.append((job.priority, -share, job.checkpoint_age, state.index, nth, state))
    candidates.sort()
    return (each[-1] for each in candidates[:_MOST_VICTIMS_AT_ONCE])


def _spare(state: JobState, level: Level, claim: Claim) -> int:
    """Return the number of trainers that a job can give up down to a level."""
    least = state.job.least
    if level is Level.SLACK and state.recent_change:
        return 0
    floor = least if level is Level.LEAST else max(least, math.ceil(state.fair - 1e-6))
    if claim.above:
        floor = max(floor, math.ceil(claim.above / state.cost - 1e-6))
    return state.size - floor
