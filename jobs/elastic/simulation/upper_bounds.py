"""Upper bounds of any policy in the published experiments, to judge figures and the feasibility of goals. Pure.

The bounds assume equal nodes, trainers and servers of one kind, and whole replicas. Everything else is as favourable as
possible: all replicas are placed at once, none stops, and moving trainers costs nothing. Unavoidable delays are
subtracted where the docstring states it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from jobs.elastic.policy.model import Job, total
from jobs.elastic.simulation.workload import Timing, Workload

_STEP = 0.25
_IMPOSSIBLE = float("-inf")


class Kinds(NamedTuple):
    """Sizes in thousandths of a core: of a node (for jobs and services), a trainer, a server and a service replica."""

    node: int
    trainer: int
    server: int
    service: int

    @classmethod
    def of(cls, workload: Workload) -> Kinds:
        node, job = workload.nodes[0], workload.arrivals[0].job
        service = workload.services[0].need.cpu if workload.services else node.allocatable.cpu + 1
        return cls(node.allocatable.cpu - node.taken.cpu, job.trainer.cpu, job.core.server.cpu, service)

    def trainers(self, servers: int, replicas: int = 0) -> float:
        """Return the trainers that fit on a node beside the given replicas; minus infinity if those do not fit."""
        left = self.node - servers * self.server - replicas * self.service
        return left // self.trainer if left >= 0 else _IMPOSSIBLE

    def in_use(self, servers: int, replicas: int = 0) -> float:
        """Return the cores in use on a node with the given replicas and as many trainers as fit."""
        return servers * self.server + replicas * self.service + self.trainer * self.trainers(servers, replicas)


def shared(nodes: Iterable[tuple[Sequence[float], int]], count: int) -> float:
    """Return an upper bound of the total worth of nodes with exactly ``count`` items on them.

    ``nodes``: the worth of a node with 0, 1, 2... items, and the number of such nodes.

    The bound is the minimum of the Lagrangian dual: with a price per item every node optimises independently, and for
    any price no assignment is worth more. Only prices at which a node changes its optimum have to be tried.
    """
    kinds = [
        ([(nth, worth) for nth, worth in enumerate(worths) if worth > _IMPOSSIBLE], many) for worths, many in nodes
    ]
    prices = {0.0}
    for points, _ in kinds:
        prices |= {(b - a) / (j - i) for i, a in points for j, b in points if i < j}
    return min(
        price * count + sum(many * max(worth - price * nth for nth, worth in points) for points, many in kinds)
        for price in prices
    )


# --- Useful trainer-seconds ---
def trainer_seconds(workload: Workload) -> float:
    """Return the useful trainer-seconds in the window if every job began on arrival and no core stayed unused.

    Cores of servers and masters are subtracted.
    """
    there = total(node.allocatable.minus(node.taken) for node in workload.nodes).cpu

    def capacity(jobs: Sequence[Job]) -> float:
        kept = sum(job.core.master.cpu + job.core.server.cpu * job.core.servers for job in jobs)
        return (there - kept) / jobs[0].trainer.cpu

    return _while_they_come(workload, capacity)


def packed_trainer_seconds(workload: Workload) -> float:
    """Return the bound of ``trainer_seconds`` with whole replicas on whole nodes."""
    kinds = Kinds.of(workload)
    node = [kinds.trainers(servers) for servers in range(kinds.node // kinds.server + 1)]
    return _while_they_come(
        workload, lambda jobs: shared([(node, len(workload.nodes))], sum(job.core.servers for job in jobs))
    )


def _while_they_come(workload: Workload, capacity: Callable[[Sequence[Job]], float]) -> float:
    moments = sorted({0.0, workload.window, *(arrival.at for arrival in workload.arrivals)})
    seconds = 0.0
    for begin, end in pairwise(moments):
        jobs = [arrival.job for arrival in workload.arrivals if arrival.at <= begin]
        if jobs:
            seconds += (end - begin) * min(capacity(jobs), sum(job.most for job in jobs))
    return seconds


# --- Cores in use ---
def utilisation(workload: Workload, timing: Timing) -> float:
    """Return the largest mean fraction of the cores, 0 to 1, that jobs alone can have in use over the window.

    It is an expected value over random start times. Pods of a job are created one after the other after the reaction
    time and start according to ``timing``; until then they are not in use. A job that comes when all cores could be in
    use needs idle cores while its servers, its master and its least start.
    """
    kinds, nodes, cores = Kinds.of(workload), len(workload.nodes), 0.0
    node = [kinds.in_use(servers) for servers in range(kinds.node // kinds.server + 1)]
    others = sum(each.taken.cpu for each in workload.nodes)

    @cache
    def packed(jobs: int) -> float:
        first = [arrival.job.core for arrival in workload.arrivals[:jobs]]
        return sum(core.master.cpu for core in first) + shared([(node, nodes)], sum(core.servers for core in first))

    full = workload.window
    for step in range(round(workload.window / _STEP)):
        at = (step + 0.5) * _STEP
        there = [arrival for arrival in workload.arrivals if arrival.at <= at]
        capacity = packed(len(there))
        started = capacity if at > full else sum(_started(each.job, at - each.at, timing) for each in there)
        if there and started >= capacity:
            full = min(full, at)
        cores += _STEP * (others + min(capacity, started))
    late = [arrival.job for arrival in workload.arrivals if arrival.at > full]
    idle = sum(timing.start) / 2 * sum(_beginning(job) for job in late)
    return (cores - idle) / (workload.window * sum(each.allocatable.cpu for each in workload.nodes))


def _beginning(job: Job) -> int:
    """Return the cores that a job begins with at least."""
    return job.core.master.cpu + job.core.server.cpu * job.core.servers + job.trainer.cpu * job.least


def _started(job: Job, age: float, timing: Timing) -> float:
    """Return the expected cores of a job's pods in use ``age`` seconds after its arrival, if nothing delays it.

    The largest pods are created first, which gives the most cores in use.
    """
    pods = [job.trainer.cpu] * job.most + [job.core.server.cpu] * job.core.servers + [job.core.master.cpu]
    (low, high), reaction = timing.start, timing.reaction or 0.0
    ready = [(age - reaction - nth / timing.calls - low) / (high - low) for nth in range(1, len(pods) + 1)]
    return sum(cpu * min(1.0, max(0.0, part)) for cpu, part in zip(sorted(pods, reverse=True), ready, strict=True))


def utilisation_beside_a_service(workload: Workload, seed: int) -> float:
    """Return the largest fraction of the cores in use beside a service for a policy that cannot foresee its demand.

    The replicas of the service begin evenly spread and stay where they are; those that stop are chosen at random, and
    new ones go where they fit best. Servers are placed where most cores are in use when the jobs begin, and stay there.
    No delays are subtracted.
    """
    kinds, window = Kinds.of(workload), workload.window
    chance, wanted = random.Random(seed), workload.services[0].wanted  # noqa: S311  chance, no secret
    nodes = _spread(wanted, len(workload.nodes))
    core_seconds = 0.0
    for begin, end, demand in _periods(workload):
        jobs = [arrival.job for arrival in workload.arrivals if arrival.at <= begin]
        _put_servers(nodes, kinds, sum(job.core.servers for job in jobs))
        if demand is not None:
            _stop_replicas(nodes, demand, chance)
            wanted = demand
        core_seconds += (min(end, window) - begin) * _cores_in_use(nodes, jobs, wanted, kinds)
    others = window * sum(node.taken.cpu for node in workload.nodes)
    return (core_seconds + others) / (window * sum(node.allocatable.cpu for node in workload.nodes))


def _spread(replicas: int, nodes: int) -> list[list[int]]:
    """Return the replicas and the servers of each node, with the replicas evenly spread and no servers."""
    each, further = divmod(replicas, nodes)
    return [[each + (number < further), 0] for number in range(nodes)]


def _periods(workload: Workload) -> Iterator[tuple[float, float, int | None]]:
    """Yield begin, end and new demand (None: unchanged) of the periods between events that begin in the window."""
    events = [
        *((arrival.at, None) for arrival in workload.arrivals),
        *((demand.at, demand.wanted) for demand in workload.demands),
    ]
    for (begin, demand), (end, _) in pairwise([(0.0, None), *events, (workload.window, None)]):
        if begin >= workload.window:
            return
        yield begin, end, demand


def _stop_replicas(nodes: list[list[int]], wanted: int, chance: random.Random) -> None:
    """Stop replicas on nodes chosen at random until there are at most ``wanted``."""
    on = [number for number, (replicas, _) in enumerate(nodes) for _ in range(replicas)]
    for number in chance.sample(on, max(0, len(on) - wanted)):
        nodes[number][0] -= 1


def _cores_in_use(nodes: Sequence[Sequence[int]], jobs: Sequence[Job], wanted: int, kinds: Kinds) -> float:
    """Return the most cores that the jobs and ``wanted`` replicas of the service can have in use."""
    most = sum(job.trainer.cpu * job.most + job.core.server.cpu * job.core.servers for job in jobs)
    masters = sum(job.core.master.cpu for job in jobs)
    capacity = _beside(Counter((replicas, servers) for replicas, servers in nodes), wanted, kinds)
    return masters + min(capacity, most + wanted * kinds.service)


def _put_servers(nodes: list[list[int]], kinds: Kinds, count: int) -> None:
    """Place servers where each adds most to the cores in use, several on a node if that is best, up to ``count``."""
    missing = count - sum(servers for _, servers in nodes)
    while missing > 0:
        worth = {
            (replicas, more): (kinds.in_use(more, replicas) - kinds.in_use(0, replicas)) / more
            for replicas, servers in nodes
            if not servers
            for more in range(1, missing + 1)
            if kinds.trainers(more, replicas) >= 0
        }
        replicas, more = max(worth, key=lambda each: (worth[each], each))
        next(node for node in nodes if node == [replicas, 0])[1] = more
        missing -= more


def _beside(nodes: Mapping[tuple[int, int], int], wanted: int, kinds: Kinds) -> float:
    """Return the most cores in use with further replicas on the nodes until there are ``wanted``.

    ``nodes``: by (replicas, servers) on a node, the number of such nodes.
    """
    missing = wanted - sum(replicas * count for (replicas, _), count in nodes.items())
    further = range(kinds.node // kinds.service + 1 if missing else 1)
    return shared(
        [
            ([kinds.in_use(servers, replicas + more) for more in further], count)
            for (replicas, servers), count in nodes.items()
        ],
        missing,
    )
