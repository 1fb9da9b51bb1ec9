"""State of a decision in progress: the trainers of every job by node, and the amounts left to namespaces. Pure.

A decision is a series of small changes of this state: a trainer stops, a place is taken, a job stops whole. Each
records its inverse in ``Allocation.transaction``, so that an attempt that fails is rolled back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from jobs.elastic.policy import fair_share
from jobs.elastic.policy.model import Amounts, Cluster, Job, total
from jobs.elastic.policy.namespace_limits import NamespaceLimits
from jobs.elastic.policy.parameters import Rules
from jobs.elastic.policy.placement import FreeCapacity, Tiling, begin_one
from jobs.elastic.policy.transaction import Transaction
from jobs.elastic.policy.working_state import JobState, NodeState


class Allocation:
    """The jobs and nodes of a cluster, with all changes decided so far.

    Invariant: the amounts of a place are taken from its node and from the limit of its namespace together, and given
    back together. ``capacity``: the amounts for all jobs together. ``grants``: trainers that start now, by job and node
    name. ``preempted``: the jobs that stop whole, each with its beneficiary. ``stopping``: the number of trainers that
    stop.
    """

    def __init__(self, cluster: Cluster, now: float, rules: Rules) -> None:
        self.services, self.now, self.rules = cluster.services, now, rules
        self.free_capacity = _free_capacity(cluster)
        self.limits, self.remaining_limits = cluster.limits, NamespaceLimits(cluster)
        capacity = total(node.allocatable for node in cluster.nodes)
        self.capacity = _for_jobs(cluster, capacity)
        self.jobs = [self._job_state(index, job, capacity) for index, job in enumerate(cluster.jobs)]
        for state, weight in zip(self.jobs, fair_share.weights(cluster.jobs), strict=True):
            state.cost /= weight
            for node in state.by_node:
                node.jobs.add(state)
        self.set_fair_shares(self.capacity)
        self.transaction = Transaction()
        self.grants: dict[JobState, dict[str, int]] = {}
        self.preempted: dict[JobState, str] = {}
        self.stopping = 0

    def _job_state(self, index: int, job: Job, capacity: Amounts) -> JobState:
        find, size = self.free_capacity.node, job.size
        recently = job.changed is not None and self.now - job.changed < self.rules.cool_down
        by_node = {node: count for name, count in job.trainers.items() if count and (node := find(name)) is not None}
        cost, useful = fair_share.dominant(job.trainer, capacity), fair_share.useful(job)
        shape, begins = (job.trainer, job.tolerates), None if job.started is None else True
        change = job.change if recently else 0
        # Positional arguments: keywords are slower, and this call is made for each job of a decision.
        return JobState(index, job, shape, cost, useful, change, size, size, begins, by_node)

    # --- Queries ---
    def may_grow(self, state: JobState) -> bool:
        if state.target >= state.useful or state.begins is None:
            return False
        return state not in self.preempted and not state.victims and state.recent_change >= 0

    def of_namespace(self, namespace: str) -> Iterator[JobState]:
        return (state for state in self.jobs if state.job.namespace == namespace)

    def in_use(self) -> Amounts:
        """Return the amounts that all jobs take, including the trainers promised to them."""
        trainers = total(state.job.trainer.times(state.target) for state in self.jobs)
        return trainers.plus(total(fair_share.fixed(state.job) for state in self.jobs))

    # --- Changes ---
    def set_fair_shares(self, capacity: Amounts) -> None:
        """Compute the fair share of every job in the amounts for all jobs."""
        jobs, most = [state.job for state in self.jobs], [state.useful for state in self.jobs]
        if self.limits:
            most = fair_share.within_limits(jobs, most, self.limits)
        for state, fair in zip(self.jobs, fair_share.fair(jobs, most, capacity), strict=True):
            state.fair = fair

    def take(self, node: NodeState, need: Amounts, namespace: str | None) -> None:
        """Take the amounts of one replica. The inverse of ``give_back``."""
        self.free_capacity.take(node, need)
        self.remaining_limits.take(namespace, need)

    def give_back(self, node: NodeState, need: Amounts, namespace: str | None) -> None:
        """Return the amounts of a replica that will stop, or of a place that is not used."""
        self.free_capacity.give_back(node, need)
        self.remaining_limits.give_back(namespace, need)

    def start(self, state: JobState, node: NodeState) -> None:
        """Add one trainer, whose place is taken: now if there is capacity now and the job runs, else when there is."""
        state.target += 1
        if state.begins and begin_one(node, state.shape[0]):
            grants = self.grants.get(state)
            if grants is None:
                grants = self.grants[state] = {}
            name = node.name
            grants[name] = grants.get(name, 0) + 1
        else:
            state.planned += 1

    def stop(self, state: JobState, node: NodeState, beneficiary: str) -> None:
        """Stop one trainer of a job on this node."""
        self._shift(state, node, -1, beneficiary)
        self.transaction.record(partial(self._shift, state, node, 1, beneficiary))

    def preempt(self, state: JobState, beneficiary: str) -> None:
        """Stop a job whole."""
        namespace = state.job.namespace
        for node, count in list(state.by_node.items()):
            for _ in range(count):
                self.stop(state, node, beneficiary)
        for name, held in state.job.held.items():
            at = self.free_capacity.node(name)
            if at is not None:
                self.give_back(at, held, namespace)
                self.transaction.record(partial(self.take, at, held, namespace))
        self.preempted[state] = beneficiary
        self.transaction.record(partial(self.preempted.pop, state))

    def _shift(self, state: JobState, node: NodeState, by: int, beneficiary: str) -> None:
        """Change the number of trainers that stay on a node: -1 stops one, 1 undoes that."""
        by_node, victims, job = state.by_node, state.victims, state.job
        by_node[node] = by_node.get(node, 0) + by
        state.size += by
        state.target += by
        self.stopping -= by
        victims[node] = victims.get(node, 0) - by
        state.stopped_for[beneficiary] = state.stopped_for.get(beneficiary, 0) - by
        if by < 0:
            self.give_back(node, job.trainer, job.namespace)
        else:
            self.take(node, job.trainer, job.namespace)
        if by_node[node] == 0:
            del by_node[node]
            node.jobs.discard(state)
        else:
            node.jobs.add(state)
        if not victims[node]:
            del victims[node]


def first_victim(states: Iterable[JobState]) -> JobState | None:
    """Return the job that gives up a trainer: of the lowest priority, then with the largest share, then the first."""
    return max(states, key=lambda state: (-state.job.priority, state.share, -state.index), default=None)


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


def _for_jobs(cluster: Cluster, capacity: Amounts) -> Amounts:
    """Return the amounts for all jobs together: without those of services and of other pods."""
    others = total(node.taken for node in cluster.nodes)
    services = total(service.need.times(service.wanted) for service in cluster.services)
    return Amounts(*(max(0, each) for each in capacity.minus(others).minus(services)))
