"""State of a decision in progress: the trainers of every job by node, and the amounts left to namespaces. Pure.

A decision is a series of small changes of this state: a trainer stops, a place is taken, a job stops whole. Each of
them can be undone: ``undo`` holds the inverse operations, newest last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from jobs.elastic.policy import fair_share
from jobs.elastic.policy.model import Amounts, Cluster, Job, total
from jobs.elastic.policy.parameters import Rules
from jobs.elastic.policy.placement import FreeCapacity, Shape, Tiling


class Standing:
    """The state. Jobs and nodes are identified by their indices, and all lists are by job unless noted.

    ``stay``: trainers that stay, by node. ``size``: their number, including those without a node. ``height``: trainers
    that the job has, gets now or is promised. ``most``: the most trainers that are useful to it. ``fair``: its fair
    share. ``on_node``: by node, the jobs with trainers there. ``victims``: trainers that stop, by node. ``given``: the
    number of trainers that stop, by beneficiary. ``grants``: trainers that start now, by node name. ``planned``: the
    number of trainers that start as soon as there is capacity. ``preempted``: the beneficiary of a job that stops
    whole. ``placed``: newcomers with a place for all replicas, and whether they begin now. ``left``: by namespace with
    a limit, the amounts that it may still take. ``capacity``: the amounts for all jobs together.
    """

    def __init__(self, cluster: Cluster, now: float, rules: Rules) -> None:
        self.jobs, self.services, self.now, self.rules = cluster.jobs, cluster.services, now, rules
        self.free_capacity = _free_capacity(cluster)
        self.most = [fair_share.useful(job) for job in self.jobs]
        self.limits = cluster.limits
        self.left = _left(cluster)
        capacity = total(node.allocatable for node in cluster.nodes)
        self.capacity = _for_jobs(cluster, capacity)
        self.fair = self.fair_of(self.capacity)
        weights = fair_share.weights(self.jobs)
        self.cost = [
            fair_share.dominant(job.trainer, capacity) / weight for job, weight in zip(self.jobs, weights, strict=True)
        ]
        self.shape: list[Shape] = [(job.trainer, job.tolerates) for job in self.jobs]
        self.stay = [self._by_number(job) for job in self.jobs]
        self.size = [job.size for job in self.jobs]
        self.height = list(self.size)
        self.on_node: list[set[int]] = [set() for _ in cluster.nodes]
        for index, by_node in enumerate(self.stay):
            for number in by_node:
                self.on_node[number].add(index)
        self.victims: dict[int, Counter[int]] = {}
        self.given: dict[int, Counter[str]] = {}
        self.grants: dict[int, dict[str, int]] = {}
        self.planned: Counter[int] = Counter()
        self.placed: dict[int, bool] = {}
        self.preempted: dict[int, str] = {}
        self.stopping = 0
        self.undo: list[Callable[[], object]] = []

    def _by_number(self, job: Job) -> dict[int, int]:
        known = self.free_capacity.number
        return {known[name]: count for name, count in job.trainers.items() if count and name in known}

    # --- Queries ---
    def share(self, index: int) -> float:
        return self.height[index] * self.cost[index]

    def recently(self, index: int, direction: int) -> bool:
        """Whether it grew (1) or shrank (-1) a moment ago."""
        job = self.jobs[index]
        return job.changed is not None and job.change * direction > 0 and self.now - job.changed < self.rules.cool_down

    def may_grow(self, index: int) -> bool:
        if self.height[index] >= self.most[index] or (self.jobs[index].started is None and index not in self.placed):
            return False
        return index not in self.preempted and not self.victims.get(index) and not self.recently(index, -1)

    def of(self, namespace: str) -> Iterator[int]:
        return (index for index, job in enumerate(self.jobs) if job.namespace == namespace)

    def anywhere(self, index: int) -> int:
        """Return the node on which a job gives up a trainer if any node will do."""
        return max(self.stay[index], key=lambda each: (self.stay[index][each], each))

    def first_to_give(self, indices: Iterable[int]) -> int:
        """Return the job that gives up a trainer: of the lowest priority, then with the largest share. -1: none."""
        return max(indices, key=lambda i: (-self.jobs[i].priority, self.share(i), -i), default=-1)

    def fair_of(self, capacity: Amounts) -> list[float]:
        """Return the fair share of every job in the amounts for all jobs."""
        most = fair_share.within_limits(self.jobs, self.most, self.limits) if self.limits else self.most
        return fair_share.fair(self.jobs, most, capacity)

    def in_use(self) -> Amounts:
        """Return the amounts that all jobs take, including the trainers promised to them."""
        heights = (job.trainer.times(height) for job, height in zip(self.jobs, self.height, strict=True))
        return total(heights).plus(total(fair_share.fixed(job) for job in self.jobs))

    def allowed(self, namespace: str | None, need: Amounts) -> bool:
        """Whether the limit of a namespace allows it to take ``need`` more."""
        left = None if namespace is None else self.left.get(namespace)
        return left is None or all(amount <= there or not amount for amount, there in zip(need, left, strict=True))

    # --- Changes ---
    def count(self, namespace: str | None, need: Amounts, sign: int) -> None:
        left = None if namespace is None else self.left.get(namespace)
        if left is not None:
            left[:] = [there + sign * amount for there, amount in zip(left, need, strict=True)]

    def occupy(self, number: int, need: Amounts, namespace: str | None) -> None:
        self.free_capacity.take(number, need)
        self.count(namespace, need, -1)

    def free(self, number: int, need: Amounts, namespace: str | None) -> None:
        self.free_capacity.give_back(number, need)
        self.count(namespace, need, 1)

    def give(self, index: int, number: int) -> None:
        """Add one trainer: now if there is capacity now and the job runs, else as soon as there is."""
        self.height[index] += 1
        if self.placed.get(index, True) and self.free_capacity.begin_one(number, self.jobs[index].trainer):
            grants, name = self.grants.setdefault(index, {}), self.free_capacity.names[number]
            grants[name] = grants.get(name, 0) + 1
        else:
            self.planned[index] += 1

    def stop(self, index: int, number: int, beneficiary: str) -> None:
        """Stop one trainer of a job on this node."""
        self._shift(index, number, -1, beneficiary)
        self.undo.append(lambda: self._shift(index, number, 1, beneficiary))

    def preempt(self, index: int, beneficiary: str) -> None:
        """Stop a job whole."""
        job = self.jobs[index]
        for number, count in list(self.stay[index].items()):
            for _ in range(count):
                self.stop(index, number, beneficiary)
        for name, held in job.held.items():
            number = self.free_capacity.number.get(name, -1)
            if number >= 0:
                self.free(number, held, job.namespace)
                self.undo.append(partial(self.occupy, number, held, job.namespace))
        self.preempted[index] = beneficiary
        self.undo.append(lambda: self.preempted.pop(index))

    def rewind(self) -> None:
        """Undo all changes since ``undo`` was empty."""
        while self.undo:
            self.undo.pop()()

    def _shift(self, index: int, number: int, by: int, beneficiary: str) -> None:
        stay, job = self.stay[index], self.jobs[index]
        stay[number] = stay.get(number, 0) + by
        self.size[index] += by
        self.height[index] += by
        self.stopping -= by
        victims = self.victims.setdefault(index, Counter())
        victims[number] -= by
        self.given.setdefault(index, Counter())[beneficiary] -= by
        if by < 0:
            self.free(number, job.trainer, job.namespace)
        else:
            self.occupy(number, job.trainer, job.namespace)
        if stay[number] == 0:
            del stay[number]
            self.on_node[number].discard(index)
        else:
            self.on_node[number].add(index)
        if not victims[number]:
            del victims[number]


def _free_capacity(cluster: Cluster) -> FreeCapacity:
    demand: Counter[int] = Counter()
    for job in cluster.jobs:
        demand[job.trainer.cpu] += max(job.most, 1)
        demand[job.core.server.cpu] += job.core.servers if job.started is None else 0
    for service in cluster.services:
        demand[service.need.cpu] += service.missing
    free_capacity = FreeCapacity(cluster.nodes, Tiling(demand))
    for job in cluster.jobs:
        for name, count in job.trainers.items():
            free_capacity.occupy(name, job.trainer, count)
        for name, held in job.held.items():
            free_capacity.occupy(name, held, 1)
        for name, left in job.leaving.items():
            free_capacity.occupy(name, left, 1, stays=False)
    for service in cluster.services:
        for name, count in service.bound.items():
            free_capacity.occupy(name, service.need, count)
        for name, left in service.leaving.items():
            free_capacity.occupy(name, left, 1, stays=False)
    free_capacity.ready()
    return free_capacity


def _left(cluster: Cluster) -> dict[str, list[int]]:
    """Return the amounts that each namespace with a limit may still take once stopping replicas are gone."""
    left = {namespace: list(limit) for namespace, limit in cluster.limits.items()}
    for job in cluster.jobs:
        if job.started is not None and job.namespace in left:
            taken = job.trainer.times(job.size).plus(fair_share.fixed(job))
            left[job.namespace] = [there - each for there, each in zip(left[job.namespace], taken, strict=True)]
    return left


def _for_jobs(cluster: Cluster, capacity: Amounts) -> Amounts:
    """Return the amounts for all jobs together: without those of services and of other pods."""
    others = total(node.taken for node in cluster.nodes)
    services = total(service.need.times(service.wanted) for service in cluster.services)
    return Amounts(*(max(0, each) for each in capacity.minus(others).minus(services)))
