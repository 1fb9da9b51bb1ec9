"""From the nodes and pods of a cluster to what a policy looks at. Pure.

Pods of our own jobs count as the jobs', by what each shall have: who has no node yet is put where it will probably go.
All others are services where something looks after their number, and else simply take what they take.

A node that the selector of a service does not choose has a taint that everybody else tolerates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.elastic.policy.model import NOTHING, Amounts, Node, Service, total
from jobs.kubernetes_objects.pod_names import role_and_index
from jobs.kubernetes_objects.scheduling import Needs, NodeSeen, Placement, PodSeen, Selector, Taint, Toleration, matches

ANYWHERE = Placement()
_MEGABYTE = 10**6
# What looks after the number of its pods, and may want more of them.
_SERVICES = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
# Bound to their node from the beginning: nobody can make room for them elsewhere.
_DAEMONS = ("DaemonSet", "Node")
_PADDLE_JOB = "PaddleJob"
_TRAINER = "worker"
# Of what is not ours: pods that go, and pods without a node that nobody looks after. Names that no object can have.
_GOING, _ALONE = NAMELESS = ("~going", "~alone")


@dataclass(frozen=True)
class Wanted:
    """What a job of ours shall have, by the names of PaddleJobs: ``place`` is its namespace and name. ``roles``: how
    many replicas of each there shall be, and what one asks for."""

    key: str
    place: tuple[str, str]
    roles: Mapping[str, tuple[int, Amounts]]


@dataclass(frozen=True)
class Whereabouts:
    """Where a job's replicas are, by node: its trainers, what the others take, and what those take that go."""

    trainers: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, Amounts] = field(default_factory=dict)
    leaving: Mapping[str, Amounts] = field(default_factory=dict)
    pending: int = 0


@dataclass(frozen=True)
class Snapshot:
    """``tolerates``: what pods of our jobs tolerate."""

    nodes: list[Node]
    services: list[Service]
    whereabouts: Mapping[str, Whereabouts]
    tolerates: frozenset[str]


def snapshot(
    nodes: Sequence[NodeSeen],
    pods: Iterable[PodSeen],
    wanted: Sequence[Wanted],
    gpu: str,
    own: Placement = ANYWHERE,
) -> Snapshot:
    """``gpu``: the name of the resource that stands for one. ``own``: on which nodes pods of our jobs may be."""
    ours: dict[tuple[str, str], list[PodSeen]] = {each.place: [] for each in wanted}
    others: list[PodSeen] = []
    for pod in pods:
        if not pod.over:
            mine = ours.get((pod.namespace, pod.owner)) if pod.kind == _PADDLE_JOB else None
            (others if mine is None else mine).append(pod)
    rank = max((pod.priority for each in ours.values() for pod in each), default=0)
    services, taken = _others(others, rank, gpu)
    selectors = sorted({each for each in (own.selector, *(group.selector for group, _ in services)) if each})
    seen = [_node(node, taken.get(node.name, NOTHING), selectors, gpu) for node in nodes]
    open_to_all = frozenset(_chosen(selector) for selector in selectors)
    taints = {taint for node in nodes for taint in node.taints}
    tolerates = _tolerated(own.tolerations, taints) | open_to_all - {_chosen(own.selector)}
    whereabouts = _Placing(seen, [service for _, service in services], tolerates).all(wanted, ours, gpu)
    return Snapshot(
        seen,
        [
            replace(service, tolerates=_tolerated(group.tolerations, taints) | open_to_all - {_chosen(group.selector)})
            for group, service in services
        ],
        whereabouts,
        tolerates,
    )


def within(nodes: Sequence[Node], taken: Mapping[str, Amounts], others: Amounts, limit: Amounts) -> list[Node]:
    """The nodes without what jobs shall leave alone: ``limit`` is what admins have said that there is for jobs.

    ``taken``: what jobs take, by node; ``others``: what services take of all. The nodes on which jobs have least lose
    their room first, so that what is left is not scattered.
    """
    there = total(node.allocatable.minus(node.taken) for node in nodes).minus(others)
    excess = [max(0, have - may) for have, may in zip(there, limit, strict=True)]
    found = []
    for node in sorted(nodes, key=lambda each: (taken.get(each.name, NOTHING), each.name)):
        used = taken.get(node.name, NOTHING)
        free = [max(0, each) for each in node.allocatable.minus(node.taken).minus(used)]
        less = Amounts(*(min(each) for each in zip(free, excess, strict=True)))
        excess = [amount - part for amount, part in zip(excess, less, strict=True)]
        found.append(replace(node, taken=node.taken.plus(less)))
    return sorted(found, key=lambda node: node.name)


# --- What is not ours -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Group:
    """Pods that are alike."""

    namespace: str
    kind: str
    owner: str
    needs: Needs
    priority: int
    tolerations: tuple[Toleration, ...]
    selector: Selector


def _others(pods: Iterable[PodSeen], rank: int, gpu: str) -> tuple[list[tuple[_Group, Service]], dict[str, Amounts]]:
    """The services, and what everything else takes, by node."""
    taken: dict[str, Amounts] = defaultdict(Amounts)
    going: dict[str, Amounts] = defaultdict(Amounts)
    bound: dict[_Group, Counter[str]] = defaultdict(Counter)
    missing: Counter[_Group] = Counter()
    for pod in pods:
        need, is_service = _amounts(pod.needs, gpu, up=True), pod.kind in _SERVICES
        if pod.leaving:
            going[pod.node] = going[pod.node].plus(need)
        elif pod.node and not is_service:
            taken[pod.node] = taken[pod.node].plus(need)
        elif pod.node:
            bound[_group(pod)][pod.node] += 1
        elif pod.kind not in _DAEMONS:
            missing[_group(pod)] += 1
    groups = sorted({*bound, *missing}, key=repr)
    services = [(group, _service(group, bound[group], missing[group], rank, gpu)) for group in groups]
    if going:
        gone = Service(_GOING, NOTHING, 0, leaving=dict(going), priority=_priority(rank, rank))
        services.append((_Group("", "", _GOING, Needs(), rank, (), ()), gone))
    return services, dict(taken)


def _group(pod: PodSeen) -> _Group:
    alone = pod.kind not in _SERVICES
    return _Group(
        "" if alone else pod.namespace,
        "" if alone else pod.kind,
        _ALONE if alone else pod.owner,
        pod.needs,
        pod.priority,
        pod.tolerations,
        pod.selector,
    )


def _service(group: _Group, bound: Counter[str], missing: int, rank: int, gpu: str) -> Service:
    key = f"{group.namespace}/{group.owner}" if group.kind else group.owner
    need = _amounts(group.needs, gpu, up=True)
    return Service(key, need, bound.total() + missing, dict(bound), priority=_priority(group.priority, rank))


def _priority(priority: int, rank: int) -> int:
    """Who has more than the pods of jobs comes before all jobs, else after all; jobs among each other are -1 to 1."""
    return 1 + priority - rank if priority > rank else min(-1, priority - rank - 1)


# --- Nodes ------------------------------------------------------------------------------------------------------------
def _node(node: NodeSeen, taken: Amounts, selectors: Iterable[Selector], gpu: str) -> Node:
    taints = {_taint_text(taint) for taint in node.taints}
    taints |= {_chosen(selector) for selector in selectors if not matches(selector, node)}
    return Node(node.name, _amounts(node.allocatable, gpu, up=False), frozenset(taints), taken)


def _tolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> frozenset[str]:
    return frozenset(_taint_text(taint) for taint in taints if any(each.covers(taint) for each in tolerations))


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def _chosen(selector: Selector) -> str:
    return f"not chosen by {selector}"


def _amounts(needs: Needs, gpu: str, *, up: bool) -> Amounts:
    memory = -(-needs.memory // _MEGABYTE) if up else needs.memory // _MEGABYTE
    return Amounts(needs.cpu, memory, dict(needs.extended).get(gpu, 0))


# --- Our own ----------------------------------------------------------------------------------------------------------
class _Placing:
    """Where replicas without a node will probably go: where most cores are free."""

    def __init__(self, nodes: Sequence[Node], services: Iterable[Service], tolerates: frozenset[str]) -> None:
        self._known = {node.name for node in nodes}
        self._open = {node.name for node in nodes if node.taints <= tolerates}
        self._free = {node.name: node.allocatable.minus(node.taken) for node in nodes}
        for service in services:
            for name, count in service.bound.items():
                self._take(name, service.need.times(count))
            for name, amounts in service.leaving.items():
                self._take(name, amounts)

    def all(
        self, wanted: Sequence[Wanted], ours: Mapping[tuple[str, str], list[PodSeen]], gpu: str
    ) -> dict[str, Whereabouts]:
        """Those that have a node first: only then is known what is free."""
        bound = {job.key: self._bound(job, ours[job.place], gpu) for job in wanted}
        return {job.key: self._whole(job, *bound[job.key]) for job in wanted}

    def _bound(
        self, job: Wanted, pods: Iterable[PodSeen], gpu: str
    ) -> tuple[dict[str, Counter[str]], dict[str, Amounts]]:
        """How many of each role are on each node, and what those take that go."""
        there: dict[str, Counter[str]] = {role: Counter() for role in job.roles}
        leaving: dict[str, Amounts] = {}
        for pod in pods:
            if not pod.node:
                continue
            role, index = role_and_index(pod.name)
            self._take(pod.node, _amounts(pod.needs, gpu, up=True))
            if pod.leaving or index >= job.roles.get(role, (0, NOTHING))[0]:
                leaving[pod.node] = leaving.get(pod.node, NOTHING).plus(_amounts(pod.needs, gpu, up=True))
            else:
                there[role][pod.node] += 1
        return there, leaving

    def _whole(self, job: Wanted, there: dict[str, Counter[str]], leaving: dict[str, Amounts]) -> Whereabouts:
        pending = 0
        for role, (count, need) in job.roles.items():
            for _ in range(count - there[role].total()):
                name = self._place(need)
                if name:
                    there[role][name] += 1
                else:
                    pending += role == _TRAINER
        held: dict[str, Amounts] = {}
        for role, by_node in there.items():
            for name, count in by_node.items() if role != _TRAINER else ():
                held[name] = held.get(name, NOTHING).plus(job.roles[role][1].times(count))
        return Whereabouts(dict(there.get(_TRAINER, {})), held, leaving, pending)

    def _place(self, need: Amounts) -> str:
        """The emptiest node on which it fits; where it fits nowhere, the emptiest: room is to be made there."""
        best = max(self._candidates(need), default=None)
        if best is None:
            return ""
        self._take(best[-1], need)
        return best[-1]

    def _candidates(self, need: Amounts) -> Iterator[tuple[bool, Amounts, str]]:
        for name in self._open:
            left = self._free[name].minus(need)
            yield min(left) >= 0, left, name

    def _take(self, name: str, amounts: Amounts) -> None:
        if name in self._known:
            self._free[name] = self._free[name].minus(amounts)
