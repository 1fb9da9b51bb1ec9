"""How many trainers every job has, who begins and who makes room. Pure.

Decided in this order, and everything on real nodes, never above what a node has, nor a namespace above its limit:

0. Who is above its bounds gives up what is too much. Where more is taken than there is (others let it in, or a node or
   a limit has become smaller), jobs give up what they have grown by.
1. Services of higher priority get room for the replicas that they miss.
2. Jobs that have lost trainers get their least back. Newcomers get their least, all replicas of it at once or none (a
   gang), in the order of their age; a priority is a head start in age. Room comes from what is free, then from jobs
   above their fair share, then from jobs above their least; only a job of lower priority, that has run for a while,
   stops whole. Whoever has waited longer than ``Rules.patience`` lets no later one pass: so nobody starves as long as
   jobs end.
3. Services that have grown lately get *head-room*: room for a part of as many replicas again, before they ask.
4. Jobs grow into what is left, one trainer at a time, always the job with the smallest share (``shares.py``), never
   above ``most`` nor above the number that was measured to be of use.
5. Where a job lacks more than a little of its fair share, those who have more than theirs give it up.

Who shrank within ``Rules.cool_down`` does not grow, who grew within it does not shrink but for 0 to 3, and 5
leaves both alone: nobody goes up and down in a circle. Room that comes free only when something has stopped is kept for
whom it was made for.

More nodes of the same kind never make a job wait longer while all jobs ask for the same; with replicas of several sizes
they can, as with every packing: another job may then begin first.

It ends: a placement takes room, trainers stop only down to a floor, and what was done for a gang that does not fit is
undone once.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise

from jobs.elastic import shares, words
from jobs.elastic.cluster import NOTHING, Amounts, Cluster, Decision, Job, Launch, Service, total
from jobs.elastic.room import Room, Shape, Tiling


@dataclass(frozen=True)
class Rules:
    """Times in seconds. ``slack``: by what part of its fair share a job may be above or below it before others are made
    to shrink. ``head_room``: what part of the largest recent growth of a service is kept free for the next, for
    ``head_room_for`` seconds. ``depth``: how many newcomers that do not fit are searched room for."""

    cool_down: float = 30.0
    shortest_run: float = 60.0
    patience: float = 600.0
    head_start: float = 3600.0
    slack: float = 0.1
    head_room: float = 0.1
    head_room_for: float = 120.0
    depth: int = 50


RULES = Rules()


# Minus the replicas that fit for each trainer that stops; then minus the cores that are left on the node afterwards,
# together: what is left in one piece is of use to the next.
_Cost = tuple[float, int]


class _Level(IntEnum):
    """Down to where jobs give up trainers."""

    SLACK = 0  # a little above the fair share, and not who grew a moment ago
    SHARE = 1
    LEAST = 2


_GENTLE, _ANY = (_Level.SHARE, _Level.LEAST), (_Level.LEAST,)
# How many nodes are compared at a time for where it costs fewest trainers to make room.
_COMPARED = 200
_MOST_VICTIMS_AT_ONCE = 8
# How often more room is made for a gang that would not fit in again.
_ROUNDS = 3


def decide(cluster: Cluster, now: float, rules: Rules = RULES) -> Decision:
    """The decision of this moment."""
    return _Pass(cluster, now, rules).run()


@dataclass
class _Gang:
    """A newcomer's replicas and where they go. ``stopping``: how many trainers of others stop for it."""

    job: int
    masters: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    trainers: list[int] = field(default_factory=list)
    stopping: int = 0
    begins: bool = False


@dataclass(frozen=True)
class _Claim:
    """For whom room is made. ``below``: only jobs of a lower priority make it; None: all. ``above``: for a fairer share
    only those make it who keep a larger one: so it gets fairer with every step, and there is a last one.
    ``namespace``: whose limit it counts against; None: nobody's."""

    whom: str
    below: int | None = None
    above: float = 0.0
    namespace: str | None = None


class _Pass:
    def __init__(self, cluster: Cluster, now: float, rules: Rules) -> None:
        self.jobs, self.services, self.now, self.rules = cluster.jobs, cluster.services, now, rules
        self.room = _room(cluster)
        capacity = total(node.allocatable for node in cluster.nodes)
        self.most = [shares.useful(job) for job in self.jobs]
        self.limits = cluster.limits
        self.left = _left(cluster)
        self.fair = self._fair(_for_jobs(cluster, capacity))
        weights = shares.weights(self.jobs)
        self.cost = [
            shares.dominant(job.trainer, capacity) / weight for job, weight in zip(self.jobs, weights, strict=True)
        ]
        self.shape: list[Shape] = [(job.trainer, job.tolerates) for job in self.jobs]
        # Trainers of each job that stay, by node; and all of them, those without a node included.
        self.stay = [self._by_number(job) for job in self.jobs]
        self.size = [job.size for job in self.jobs]
        # Trainers that it has, is given or is promised.
        self.height = list(self.size)
        self.on_node: list[set[int]] = [set() for _ in cluster.nodes]
        for index, by_node in enumerate(self.stay):
            for number in by_node:
                self.on_node[number].add(index)
        self.victims: list[Counter[int]] = [Counter() for _ in self.jobs]
        self.given: list[Counter[str]] = [Counter() for _ in self.jobs]
        self.grants: list[list[int]] = [[] for _ in self.jobs]
        self.planned = [0] * len(self.jobs)
        self.gangs: dict[int, _Gang] = {}
        self.preempted: dict[int, str] = {}
        self.said: dict[int, str] = {}
        self._pools: dict[tuple[Shape, _Level, int | None], tuple[Iterator[int], list[tuple[_Cost, int]]]] = {}
        self._stopping = 0
        self._undo: list[Callable[[], object]] = []

    def run(self) -> Decision:
        self._keep_bounds()
        self._relieve()
        self._serve()
        self._restore()
        self._launch()
        self._keep_head_room()
        self._grow()
        self._even_out()
        return self._decision()

    def _by_number(self, job: Job) -> dict[int, int]:
        known = self.room.number
        return {known[name]: count for name, count in job.trainers.items() if count and name in known}

    # --- 0. What is above its bounds ---
    def _keep_bounds(self) -> None:
        for index, job in enumerate(self.jobs):
            allowed = job.most if self._recently(index, 1) else self.most[index]
            while self.size[index] > max(allowed, job.least) and self.stay[index]:
                number = max(self.stay[index], key=lambda each: (self.stay[index][each], each))
                self._stop(index, number, "")

    # --- 0. What is more than there is ---
    def _relieve(self) -> None:
        for number, free in enumerate(self.room.soon):
            while min(free) < 0 and (index := self._overgrown(self.on_node[number])) >= 0:
                self._stop(index, number, "")
        for namespace, left in self.left.items():
            while min(left) < 0 and (index := self._overgrown(self._of(namespace))) >= 0:
                self._stop(index, self._anywhere(index), "")
        self._undo.clear()

    def _overgrown(self, indices: Iterable[int]) -> int:
        """Which of the jobs gives up a trainer that it was not submitted with: who has the largest share. -1: none."""
        may = [i for i in indices if self.stay[i] and self.size[i] > max(self.jobs[i].least, self.jobs[i].first)]
        return max(may, key=lambda i: (-self.jobs[i].priority, self._share(i), -i), default=-1)

    def _of(self, namespace: str) -> Iterator[int]:
        return (index for index, job in enumerate(self.jobs) if job.namespace == namespace)

    def _anywhere(self, index: int) -> int:
        """The node from which a job gives up a trainer where it does not matter which."""
        return max(self.stay[index], key=lambda each: (self.stay[index][each], each))

    # --- 1. Services ---
    def _serve(self) -> None:
        for service in sorted(self.services, key=lambda each: (-each.priority, each.key)):
            claim = _Claim(f"`{service.key}`", service.priority)
            placed = self._claim((service.need, service.tolerates), service.missing, _GENTLE, claim)
            if len(placed) < service.missing:
                self._stop_jobs_for(service, service.missing - len(placed), claim)
            self._undo.clear()

    def _stop_jobs_for(self, service: Service, missing: int, claim: _Claim) -> None:
        for index in self._least_loss(service.priority):
            if missing <= 0:
                return
            self._preempt(index, claim.whom)
            missing -= len(self._claim((service.need, service.tolerates), missing, _ANY, claim))

    # --- 2. Who lacks its least ---
    def _restore(self) -> None:
        """Jobs that have lost trainers come before newcomers: they hold what else they began with."""
        for index, job in enumerate(self.jobs):
            if job.started is not None and index not in self.preempted and self.height[index] < job.least:
                missing = job.least - self.height[index]
                claim = _Claim(f"`{job.key}`", namespace=job.namespace)
                for number in self._claim(self.shape[index], missing, _GENTLE, claim):
                    self._give(index, number)

    def _launch(self) -> None:
        failed: set[tuple[object, ...]] = set()
        first: Job | None = None
        for index in self._newcomers():
            job = self.jobs[index]
            mould = (job.core, job.least, self.shape[index], job.priority, shares.servers(job, self.fair[index]))
            if first is not None:
                self.said[index] = words.behind(first.key)
            elif mould in failed or not self._fits(index, search=len(failed) < self.rules.depth):
                failed.add(mould)
                self.said[index] = words.no_room(job.least)
                if self.now - job.submitted > self.rules.patience:
                    first = job

    def _newcomers(self) -> list[int]:
        waiting = [index for index, job in enumerate(self.jobs) if job.started is None]
        return sorted(waiting, key=lambda index: (self._age_order(self.jobs[index]), self.jobs[index].key))

    def _age_order(self, job: Job) -> float:
        return job.submitted - job.priority * self.rules.head_start

    def _fits(self, index: int, *, search: bool) -> bool:
        """Place a whole gang; where it cannot be, nothing has happened."""
        self._undo.clear()
        job, gang = self.jobs[index], _Gang(index)
        stopped = self._stopping
        fits = self._gather(gang, _GENTLE if search else ())
        if not fits and search:
            for other in self._least_loss(job.priority):
                self._preempt(other, f"`{job.key}`")
                fits = self._gather(gang, _ANY)
                if fits:
                    break
        if not fits or (self._stopping > stopped and not self._fits_again(gang)):
            while self._undo:
                self._undo.pop()()
            return False
        gang.stopping = self._stopping - stopped
        self.gangs[index] = gang
        self.height[index] += len(gang.trainers)
        gang.begins = self.room.begin(self._replicas(gang))
        return True

    def _fits_again(self, gang: _Gang) -> bool:
        """Whether it will be found to fit once the others are gone, if need be with some more of them; else they would
        stop for nothing, for ever."""
        for _ in range(_ROUNDS):
            for number, need in self._replicas(gang):
                self._free(number, need, self.jobs[gang.job].namespace)
                self._undo.append(partial(self._occupy, number, need, self.jobs[gang.job].namespace))
            for placed in (gang.masters, gang.servers, gang.trainers):
                placed.clear()
            if self._gather(gang, ()):
                return True
            if not self._gather(gang, _GENTLE):
                return False
        return False

    def _gather(self, gang: _Gang, levels: Sequence[_Level]) -> bool:
        """Place what of the gang has no place yet."""
        job = self.jobs[gang.job]
        claim = _Claim(f"`{job.key}`", namespace=job.namespace)
        parts = (
            (gang.servers, job.core.server, shares.servers(job, self.fair[gang.job])),
            (gang.trainers, job.trainer, job.least),
            (gang.masters, job.core.master, int(job.core.master != NOTHING)),
        )
        for placed, need, count in parts:
            placed.extend(self._claim((need, job.tolerates), count - len(placed), levels, claim))
            if len(placed) < count:
                return False
        return True

    def _replicas(self, gang: _Gang) -> Iterator[tuple[int, Amounts]]:
        job = self.jobs[gang.job]
        for placed, need in (
            (gang.masters, job.core.master),
            (gang.servers, job.core.server),
            (gang.trainers, job.trainer),
        ):
            for number in placed:
                yield number, need

    def _least_loss(self, priority: int) -> list[int]:
        """Jobs of lower priority that may stop whole: the least important, then those that lose least."""
        may = [
            index
            for index, job in enumerate(self.jobs)
            if job.started is not None
            and job.priority < priority
            and index not in self.preempted
            and self.now - job.started >= self.rules.shortest_run
        ]
        return sorted(may, key=lambda i: (self.jobs[i].priority, self.jobs[i].checkpoint_age * self.size[i], -i))

    def _preempt(self, index: int, whom: str) -> None:
        for number, count in list(self.stay[index].items()):
            for _ in range(count):
                self._stop(index, number, whom)
        for name, held in self.jobs[index].held.items():
            number = self.room.number.get(name, -1)
            if number >= 0:
                self._free(number, held, self.jobs[index].namespace)
                self._undo.append(partial(self._occupy, number, held, self.jobs[index].namespace))
        self.preempted[index] = whom
        self._undo.append(lambda: self.preempted.pop(index))

    # --- 3. Head-room ---
    def _keep_head_room(self) -> None:
        for service in self.services:
            count = head_room(service, self.now, self.rules)
            self._claim((service.need, service.tolerates), count, _GENTLE, _Claim(f"`{service.key}`", service.priority))

    # --- 4. Growth ---
    def _grow(self) -> None:
        self.room.exact = False
        heap = [(self._share(i), self.jobs[i].submitted, i) for i in range(len(self.jobs)) if self._may_grow(i)]
        heapq.heapify(heap)
        full: set[Shape] = set()
        while heap:
            _, submitted, index = heap[0]
            if self.left and not self._allowed(self.jobs[index].namespace, self.jobs[index].trainer):
                heapq.heappop(heap)
                continue
            number = -1 if self.shape[index] in full else self.room.place(self.shape[index])
            if number < 0:
                full.add(self.shape[index])
                heapq.heappop(heap)
                continue
            if self.left:
                self._count(self.jobs[index].namespace, self.jobs[index].trainer, -1)
            self._give(index, number)
            if self.height[index] < self.most[index]:
                heapq.heapreplace(heap, (self._share(index), submitted, index))
            else:
                heapq.heappop(heap)

    def _give(self, index: int, number: int) -> None:
        """One more trainer: now where there is room now and the job runs, else as soon as there is."""
        gang = self.gangs.get(index)
        self.height[index] += 1
        if (gang is None or gang.begins) and self.room.begin_one(number, self.jobs[index].trainer):
            self.grants[index].append(number)
        else:
            self.planned[index] += 1

    def _may_grow(self, index: int) -> bool:
        there = self.jobs[index].started is not None or index in self.gangs
        free = there and index not in self.preempted and not self.victims[index] and not self._recently(index, -1)
        return free and self.height[index] < self.most[index]

    def _recently(self, index: int, direction: int) -> bool:
        job = self.jobs[index]
        return job.changed is not None and job.change * direction > 0 and self.now - job.changed < self.rules.cool_down

    def _share(self, index: int) -> float:
        return self.height[index] * self.cost[index]

    # --- 5. Evening out ---
    def _even_out(self) -> None:
        """What is fair now is measured by what there is room for: on real nodes it is less than their sum."""
        calm = [index for index in range(len(self.jobs)) if self._is_calm(index)]
        if not calm:
            return
        self.fair = self._fair(self._in_use())
        for index in sorted(calm, key=lambda each: (self._share(each), each)):
            lacking = math.floor(self.fair[index]) - self.height[index]
            if lacking > max(1.0, self.rules.slack * self.fair[index]):
                above = (self.height[index] + lacking) * self.cost[index]
                whom, namespace = "jobs that have less than their share", self.jobs[index].namespace
                claim = _Claim(whom, above=above, namespace=namespace)
                promised = len(self._claim(self.shape[index], lacking, (_Level.SLACK,), claim))
                self.planned[index] += promised
                self.height[index] += promised

    def _is_calm(self, index: int) -> bool:
        """It runs, could grow, and its number of trainers has not changed for a while."""
        return index not in self.gangs and self._may_grow(index) and not self._recently(index, 1)

    def _in_use(self) -> Amounts:
        """What all jobs take, and will take with what they are promised."""
        heights = (self.jobs[index].trainer.times(self.height[index]) for index in range(len(self.jobs)))
        return total(heights).plus(total(shares.fixed(job) for job in self.jobs))

    # --- Limits of namespaces ---
    def _fair(self, capacity: Amounts) -> list[float]:
        most = shares.within_limits(self.jobs, self.most, self.limits) if self.limits else self.most
        return shares.fair(self.jobs, most, capacity)

    def _allowed(self, namespace: str | None, need: Amounts) -> bool:
        left = None if namespace is None else self.left.get(namespace)
        return left is None or all(amount <= there or not amount for amount, there in zip(need, left, strict=True))

    def _count(self, namespace: str | None, need: Amounts, sign: int) -> None:
        left = None if namespace is None else self.left.get(namespace)
        if left is not None:
            left[:] = [there + sign * amount for there, amount in zip(left, need, strict=True)]

    def _occupy(self, number: int, need: Amounts, namespace: str | None) -> None:
        self.room.take(number, need)
        self._count(namespace, need, -1)

    def _free(self, number: int, need: Amounts, namespace: str | None) -> None:
        self.room.give_back(number, need)
        self._count(namespace, need, 1)

    def _make_allowed(self, level: _Level, claim: _Claim) -> bool:
        """One trainer of the claim's own namespace stops; False where none may."""
        may = [i for i in self._of(claim.namespace or "") if self.stay[i] and self._spare(i, level, claim) > 0]
        index = max(may, key=lambda i: (-self.jobs[i].priority, self._share(i), -i), default=-1)
        if index >= 0:
            self._stop(index, self._anywhere(index), claim.whom)
        return index >= 0

    # --- Making room ---
    def _claim(self, shape: Shape, count: int, levels: Sequence[_Level], claim: _Claim) -> list[int]:
        """Up to ``count`` places, for which jobs give up trainers down to each of the levels in turn."""
        placed: list[int] = []
        while len(placed) < count:
            if not self._allowed(claim.namespace, shape[0]):
                if not any(self._make_allowed(level, claim) for level in levels):
                    break
                continue
            number = self.room.place(shape)
            if number >= 0:
                placed.append(number)
                self._count(claim.namespace, shape[0], -1)
                self._undo.append(partial(self._free, number, shape[0], claim.namespace))
            elif not any(self._evict(shape, count - len(placed), level, claim) for level in levels):
                break
        return placed

    def _evict(self, shape: Shape, wanted: int, level: _Level, claim: _Claim) -> bool:
        """Stop trainers where it takes fewest for a replica of this shape; False where it cannot be done."""
        pool_key = (shape, level, claim.below)
        numbers, pool = self._pools.setdefault(pool_key, (iter(range(len(self.on_node))), []))
        self._fill(numbers, pool, shape, level, claim)
        while pool:
            worth, number = heapq.heappop(pool)
            chosen, fresh = self._cheapest(number, shape, wanted, level, claim)
            if not chosen:
                continue
            if pool and fresh > pool[0][0] and fresh != worth:
                heapq.heappush(pool, (fresh, number))
                continue
            heapq.heappush(pool, (fresh, number))
            for index in chosen:
                self._stop(index, number, claim.whom)
            return True
        return False

    def _fill(
        self, numbers: Iterator[int], pool: list[tuple[_Cost, int]], shape: Shape, level: _Level, claim: _Claim
    ) -> None:
        """Look at more nodes until there are enough to compare."""
        for number in numbers:
            if self.on_node[number] and self.room.tolerable(number, shape):
                chosen, worth = self._cheapest(number, shape, _MOST_VICTIMS_AT_ONCE, level, claim)
                if chosen:
                    heapq.heappush(pool, (worth, number))
                    if len(pool) >= _COMPARED:
                        return

    def _cheapest(
        self, number: int, shape: Shape, wanted: int, level: _Level, claim: _Claim
    ) -> tuple[list[int], _Cost]:
        """Whose trainers stop on a node so that most replicas fit for each of them, and what that costs."""
        best: tuple[list[int], _Cost] = ([], (0.0, 0))
        chosen: list[int] = []
        freed = [0, 0, 0]
        for index in self._willing(number, level, claim):
            chosen.append(index)
            need = self.jobs[index].trainer
            freed = [freed[0] + need[0], freed[1] + need[1], freed[2] + need[2]]
            fitting = min(wanted, self.room.slots(number, freed, shape[0]))
            cost = (-fitting / len(chosen), shape[0].cpu * fitting - self.room.soon[number][0] - freed[0])
            if fitting and cost < best[1]:
                best = (list(chosen), cost)
        return best

    def _willing(self, number: int, level: _Level, claim: _Claim) -> Iterator[int]:
        """Jobs on a node, once for each trainer that they may give up there, in the order in which they should."""
        candidates = []
        for index in self.on_node[number]:
            job = self.jobs[index]
            if claim.below is None or job.priority < claim.below:
                spare = self._spare(index, level, claim)
                for nth in range(min(spare, self.stay[index].get(number, 0), _MOST_VICTIMS_AT_ONCE)):
                    share = (self.size[index] - nth) * self.cost[index]
                    candidates.append((job.priority, -share, job.checkpoint_age, index))
        candidates.sort()
        return (each[3] for each in candidates[:_MOST_VICTIMS_AT_ONCE])

    def _spare(self, index: int, level: _Level, claim: _Claim) -> int:
        """How many trainers a job can give up down to a level."""
        fair, least = self.fair[index], self.jobs[index].least
        if level is _Level.SLACK and (self._recently(index, 1) or self._recently(index, -1)):
            return 0
        floor = least if level is _Level.LEAST else max(least, math.ceil(fair - 1e-6))
        if claim.above:
            floor = max(floor, math.ceil(claim.above / self.cost[index] - 1e-6))
        return self.size[index] - floor

    def _stop(self, index: int, number: int, whom: str) -> None:
        """One trainer fewer, on this node."""
        self._shift(index, number, -1, whom)
        self._undo.append(lambda: self._shift(index, number, 1, whom))

    def _shift(self, index: int, number: int, by: int, whom: str) -> None:
        stay, need = self.stay[index], self.jobs[index].trainer
        stay[number] = stay.get(number, 0) + by
        self.size[index] += by
        self.height[index] += by
        self.victims[index][number] -= by
        self._stopping -= by
        self.given[index][whom] -= by
        if by < 0:
            self._free(number, need, self.jobs[index].namespace)
        else:
            self._occupy(number, need, self.jobs[index].namespace)
        if stay[number] == 0:
            del stay[number]
            self.on_node[number].discard(index)
        else:
            self.on_node[number].add(index)
        if not self.victims[index][number]:
            del self.victims[index][number]

    # --- What comes of it ---
    def _decision(self) -> Decision:
        names = self.room.names
        targets, launches, grants, victims, sentences = {}, {}, {}, {}, {}
        for index, job in enumerate(self.jobs):
            targets[job.key] = self.height[index]
            sentences[job.key] = self._sentence(index)
            gang = self.gangs.get(index)
            if gang is not None and gang.begins:
                launches[job.key] = Launch(
                    tuple(names[number] for number in gang.masters),
                    tuple(names[number] for number in gang.servers),
                    tuple(names[number] for number in (*gang.trainers, *self.grants[index])),
                )
            elif self.grants[index]:
                grants[job.key] = dict(Counter(names[number] for number in self.grants[index]))
            if self.victims[index] and index not in self.preempted:
                victims[job.key] = {names[number]: count for number, count in sorted(self.victims[index].items())}
        preempted = frozenset(self.jobs[index].key for index in self.preempted)
        return Decision(targets, launches, grants, victims, preempted, sentences)

    def _sentence(self, index: int) -> str:
        job, height = self.jobs[index], self.height[index]
        gang = self.gangs.get(index)
        if index in self.said:
            return self.said[index]
        if gang is not None:
            return words.starts(height - self.planned[index]) if gang.begins else words.room_is_made(gang.stopping)
        if index in self.preempted:
            return words.stops(self.preempted[index])
        if self.victims[index]:
            whom = max(sorted(self.given[index]), key=lambda each: self.given[index][each])
            return words.shrinks(job.size, height, whom) if whom else words.bounded(job.size, height)
        if self.grants[index]:
            return words.grows(job.size, job.size + len(self.grants[index]))
        return words.will_grow(job.size, height) if self.planned[index] else self._why_it_stays(index, height)

    def _why_it_stays(self, index: int, height: int) -> str:
        if height >= self.jobs[index].most:
            return words.full(height)
        if height >= self.most[index]:
            return words.useless(height)
        return words.resting(height) if self._recently(index, -1) else words.cramped(height)


def head_room(service: Service, now: float, rules: Rules) -> int:
    """For how many replicas more room is kept: a part of its largest growth of late."""
    rises = [0]
    for (_, before), (at, after) in pairwise(service.history):
        if now - at <= rules.head_room_for:
            rises.append(after - before)
    return math.ceil(rules.head_room * max(rises))


def _room(cluster: Cluster) -> Room:
    demand: Counter[int] = Counter()
    for job in cluster.jobs:
        demand[job.trainer.cpu] += max(job.most, 1)
        demand[job.core.server.cpu] += job.core.servers if job.started is None else 0
    for service in cluster.services:
        demand[service.need.cpu] += service.missing
    room = Room(cluster.nodes, Tiling(demand))
    for job in cluster.jobs:
        for name, count in job.trainers.items():
            room.occupy(name, job.trainer, count)
        for name, held in job.held.items():
            room.occupy(name, held, 1)
        for name, left in job.leaving.items():
            room.occupy(name, left, 1, stays=False)
    for service in cluster.services:
        for name, count in service.bound.items():
            room.occupy(name, service.need, count)
        for name, left in service.leaving.items():
            room.occupy(name, left, 1, stays=False)
    room.ready()
    return room


def _left(cluster: Cluster) -> dict[str, list[int]]:
    """What each namespace with a limit may still take once what leaves is gone."""
    left = {namespace: list(limit) for namespace, limit in cluster.limits.items()}
    for job in cluster.jobs:
        if job.started is not None and job.namespace in left:
            taken = job.trainer.times(job.size).plus(shares.fixed(job))
            left[job.namespace] = [there - each for there, each in zip(left[job.namespace], taken, strict=True)]
    return left


def _for_jobs(cluster: Cluster, capacity: Amounts) -> Amounts:
    """What is there for all jobs together: without services and what belongs to others."""
    others = total(node.taken for node in cluster.nodes)
    services = total(service.need.times(service.wanted) for service in cluster.services)
    return Amounts(*(max(0, each) for each in capacity.minus(others).minus(services)))
