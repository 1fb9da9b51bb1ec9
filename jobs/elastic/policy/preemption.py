"""Places for replicas, for which others stop where it costs least. Pure."""

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
    """Down to where jobs give up trainers."""

    SLACK = 0  # a little above the fair share, and not who grew a moment ago
    SHARE = 1
    LEAST = 2


GENTLE, ANY = (Level.SHARE, Level.LEAST), (Level.LEAST,)
# How many nodes are compared at a time for where it costs fewest trainers to make room.
_COMPARED = 200
_MOST_VICTIMS_AT_ONCE = 8
# Minus the replicas that fit for each trainer that stops; then minus the cores that are left on the node afterwards,
# together: what is left in one piece is of use to the next.
_Cost = tuple[float, int]
_Pool = list[tuple[_Cost, int]]


@dataclass(frozen=True)
class Claim:
    """For whom room is made. ``below``: only jobs of a lower priority make it; None: all. ``above``: for a fairer share
    only those make it who keep a larger one: so it gets fairer with every step, and there is a last one.
    ``namespace``: whose limit it counts against; None: nobody's."""

    beneficiary: str
    below: int | None = None
    above: float = 0.0
    namespace: str | None = None


class Preemptor:
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self._pools: dict[tuple[Shape, Level, int | None], tuple[Iterator[int], _Pool]] = {}

    def claim(self, shape: Shape, count: int, levels: Sequence[Level], claim: Claim) -> list[int]:
        """Up to ``count`` places, for which jobs give up trainers down to each of the levels in turn."""
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
        """Jobs that may stop whole for a service of this priority."""
        return self._least_loss(lambda job, _started: job.priority < priority)

    def stoppable_for(self, newcomer: Job) -> list[int]:
        """Jobs that may stop whole for a newcomer: those of its namespace that began before it came and that it would
        go before if they waited since they began. So a job stops for a newcomer at most once, whatever happens to
        either: when the job begins again, it begins after the newcomer came. For one that was itself stopped before,
        nobody stops."""
        if newcomer.requeued is not None:
            return []
        head_start = self.standing.rules.head_start

        def goes_before(job: Job, started: float) -> bool:
            gained = (newcomer.priority - job.priority) * head_start
            return job.namespace == newcomer.namespace and 0 <= newcomer.submitted - started < gained

        return self._least_loss(goes_before)

    def _least_loss(self, may_stop: Callable[[Job, float], bool]) -> list[int]:
        """Jobs that have run for a while and of which that holds: the least important, then those that lose least."""
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
        """One trainer of the claim's own namespace stops; False where none may."""
        standing = self.standing
        own = standing.of(claim.namespace or "")
        index = standing.first_to_give(i for i in own if standing.stay[i] and self._spare(i, level, claim) > 0)
        if index >= 0:
            standing.stop(index, standing.anywhere(index), claim.beneficiary)
        return index >= 0

    def _evict(self, shape: Shape, wanted: int, level: Level, claim: Claim) -> bool:
        """Stop trainers where it takes fewest for a replica of this shape; False where it cannot be done."""
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
        """Look at more nodes until there are enough to compare."""
        for number in numbers:
            if self.standing.on_node[number] and self.standing.free_capacity.tolerable(number, shape):
                chosen, cost = self._cheapest(number, shape, _MOST_VICTIMS_AT_ONCE, level, claim)
                if chosen:
                    heapq.heappush(pool, (cost, number))
                    if len(pool) >= _COMPARED:
                        return

    def _cheapest(self, number: int, shape: Shape, wanted: int, level: Level, claim: Claim) -> tuple[list[int], _Cost]:
        """Whose trainers stop on a node so that most replicas fit for each of them, and what that costs."""
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
        """Jobs on a node, once for each trainer that they may give up there, in the order in which they should."""
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
        """How many trainers a job can give up down to a level."""
        standing = self.standing
        least = standing.jobs[index].least
        if level is Level.SLACK and (standing.recently(index, 1) or standing.recently(index, -1)):
            return 0
        floor = least if level is Level.LEAST else max(least, math.ceil(standing.fair[index] - 1e-6))
        if claim.above:
            floor = max(floor, math.ceil(claim.above / standing.cost[index] - 1e-6))
        return standing.size[index] - floor
