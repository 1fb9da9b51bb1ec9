"""Places for replicas, with preemption of trainers where it costs least. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from jobs.elastic.policy.allocation import Standing
from jobs.elastic.policy.model import Job
from jobs.elastic.policy.placement import Shape


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
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self._pools: dict[tuple[Shape, Level, int | None], tuple[Iterator[int], _Pool]] = {}

    def claim(self, shape: Shape, count: int, levels: Sequence[Level], claim: Claim) -> list[int]:
        """Return up to ``count`` places, for which jobs give up trainers down to each of the levels in turn."""
        standing, placed = self.standing, list[int]()
        while len(placed) < count:
            if not standing.allowed(claim.namespace, shape[0]):
                if not any(self._make_allowed(level, claim) for level in levels):
                    break
                continue
            number = standing.free_capacity.place(shape)
            if number >= 0:
                placed.append(number)
                standing.count(claim.namespace, shape[0], -1)
                standing.undo.append(partial(standing.free, number, shape[0], claim.namespace))
            elif not any(self._evict(shape, count - len(placed), level, claim) for level in levels):
                break
        return placed

    def stoppable_for_service(self, priority: int) -> list[int]:
        """Return the jobs that may stop whole for a service of this priority."""
        return self._least_loss(lambda job, _started: job.priority < priority)

    def stoppable_for(self, newcomer: Job) -> list[int]:
        """Return the jobs that may stop whole for a newcomer.

        These are the jobs of its namespace that began before it came and that it would go before had they waited since
        they began. So a job stops for a newcomer at most once: when the job begins again, that is after the newcomer
        came. No job stops for one that was itself stopped before.
        """
        if newcomer.requeued is not None:
            return []
        head_start = self.standing.rules.head_start

        def goes_before(job: Job, started: float) -> bool:
            gained = (newcomer.priority - job.priority) * head_start
            return job.namespace == newcomer.namespace and 0 <= newcomer.submitted - started < gained

        return self._least_loss(goes_before)

    def _least_loss(self, may_stop: Callable[[Job, float], bool]) -> list[int]:
        """Return the jobs that ``may_stop`` and have run for ``Rules.shortest_run``.

        They are sorted by priority, then by the work that is lost since their last checkpoint.
        """
        standing, rules = self.standing, self.standing.rules
        may = [
            index
            for index, job in enumerate(standing.jobs)
            if rules.preempts
            and job.started is not None
            and index not in standing.preempted
            and standing.now - job.started >= rules.shortest_run
            and may_stop(job, job.started)
        ]
        jobs = standing.jobs
        return sorted(may, key=lambda i: (jobs[i].priority, jobs[i].checkpoint_age * standing.size[i], -i))

    def _make_allowed(self, level: Level, claim: Claim) -> bool:
        """Stop one trainer of the claim's own namespace. Return False if none may stop."""
        standing = self.standing
        own = standing.of(claim.namespace or "")
        index = standing.first_to_give(i for i in own if standing.stay[i] and self._spare(i, level, claim) > 0)
        if index >= 0:
            standing.stop(index, standing.anywhere(index), claim.beneficiary)
        return index >= 0

    def _evict(self, shape: Shape, wanted: int, level: Level, claim: Claim) -> bool:
        """Stop trainers on the node that needs fewest for a replica of this shape. Return False if none qualifies."""
        pool_key = (shape, level, claim.below)
        numbers, pool = self._pools.setdefault(pool_key, (iter(range(len(self.standing.on_node))), []))
        self._fill(numbers, pool, shape, level, claim)
        while pool:
            cost, number = heapq.heappop(pool)
            chosen, fresh = self._cheapest(number, shape, wanted, level, claim)
            if not chosen:
                continue
            heapq.heappush(pool, (fresh, number))
            if pool[0][0] < fresh != cost:
                continue
            for index in chosen:
                self.standing.stop(index, number, claim.beneficiary)
            return True
        return False

    def _fill(self, numbers: Iterator[int], pool: _Pool, shape: Shape, level: Level, claim: Claim) -> None:
        """Add further nodes to the pool until there are enough to compare."""
        for number in numbers:
            if self.standing.on_node[number] and self.standing.free_capacity.tolerable(number, shape):
                chosen, cost = self._cheapest(number, shape, _MOST_VICTIMS_AT_ONCE, level, claim)
                if chosen:
                    heapq.heappush(pool, (cost, number))
                    if len(pool) >= _COMPARED:
                        return

    def _cheapest(self, number: int, shape: Shape, wanted: int, level: Level, claim: Claim) -> tuple[list[int], _Cost]:
        """Return the jobs whose trainers stop on a node so that most replicas fit per trainer, and the cost."""
        free_capacity = self.standing.free_capacity
        best: tuple[list[int], _Cost] = ([], (0.0, 0))
        chosen: list[int] = []
        freed = [0, 0, 0]
        for index in self._willing(number, level, claim):
            chosen.append(index)
            need = self.standing.jobs[index].trainer
            freed = [freed[0] + need[0], freed[1] + need[1], freed[2] + need[2]]
            fitting = min(wanted, free_capacity.slots(number, freed, shape[0]))
            cost = (-fitting / len(chosen), shape[0].cpu * fitting - free_capacity.soon[number][0] - freed[0])
            if fitting > 0 and cost < best[1]:
                best = (list(chosen), cost)
        return best

    def _willing(self, number: int, level: Level, claim: Claim) -> Iterator[int]:
        """Yield the jobs on a node in the order of preemption, once for each trainer that they may give up there."""
        standing, candidates = self.standing, []
        for index in standing.on_node[number]:
            job = standing.jobs[index]
            if claim.below is None or job.priority < claim.below:
                spare = self._spare(index, level, claim)
                for nth in range(min(spare, standing.stay[index].get(number, 0), _MOST_VICTIMS_AT_ONCE)):
                    share = (standing.size[index] - nth) * standing.cost[index]
                    candidates.append((job.priority, -share, job.checkpoint_age, index))
        candidates.sort()
        return (each[3] for each in candidates[:_MOST_VICTIMS_AT_ONCE])

    def _spare(self, index: int, level: Level, claim: Claim) -> int:
        """Return the number of trainers that a job can give up down to a level."""
        standing = self.standing
        least = standing.jobs[index].least
        if level is Level.SLACK and (standing.recently(index, 1) or standing.recently(index, -1)):
            return 0
        floor = least if level is Level.LEAST else max(least, math.ceil(standing.fair[index] - 1e-6))
        if claim.above:
            floor = max(floor, math.ceil(claim.above / standing.cost[index] - 1e-6))
        return standing.size[index] - floor
