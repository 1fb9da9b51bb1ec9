"""Conversion of the nodes and pods of a cluster to the input of a policy. Pure.

Pods of the portal's jobs count as replicas of those jobs, up to the desired numbers. Replicas without a node are placed
where they will probably go. All other pods are services if a controller manages their number; else they only take
amounts of their nodes.

A node that the selector of a service does not match gets a taint that everything else tolerates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.elastic.policy.model import NOTHING, Amounts, Node, Service, total
from jobs.kubernetes_objects.pod_names import role_and_index
from jobs.kubernetes_objects.scheduling import Needs, NodeInfo, Placement, PodInfo, Selector, Taint, Toleration, matches

ANYWHERE = Placement()
_MEGABYTE = 10**6
# Kinds that manage the number of their pods and may need more of them.
_SERVICES = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
# Kinds whose pods are bound to one node: capacity on other nodes does not help them.
_DAEMONS = ("DaemonSet", "Node")
_PADDLE_JOB = "PaddleJob"
_TRAINER = "worker"
# Keys for foreign pods that are stopping, and for those without a node or a controller. No object can have such names.
_STOPPING, _ALONE = NAMELESS = ("~going", "~alone")


@dataclass(frozen=True)
class Wanted:
    """The desired replicas of a job of the portal, by the names of PaddleJobs.

    ``place``: its namespace and name. ``roles``: by role, the desired number of replicas and the request of one.
    """

    key: str
    place: tuple[str, str]
    roles: Mapping[str, tuple[int, Amounts]]


@dataclass(frozen=True)
class ReplicasByNode:
    """The replicas of a job by node: its trainers, the amounts of the others, and the amounts of stopping ones.

    ``pending``: the number of trainers without a node.
    """

    trainers: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, Amounts] = field(default_factory=dict)
    leaving: Mapping[str, Amounts] = field(default_factory=dict)
    pending: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The input of a policy. ``tolerates``: the taints that pods of the portal's jobs tolerate."""

    nodes: list[Node]
    services: list[Service]
    replicas: Mapping[str, ReplicasByNode]
    tolerates: frozenset[str]


def snapshot(
    nodes: Sequence[NodeInfo],
    pods: Iterable[PodInfo],
    wanted: Sequence[Wanted],
    gpu: str,
    own: Placement = ANYWHERE,
) -> Snapshot:
    """Return the snapshot.

    ``gpu``: the name of the resource for GPUs. ``own``: the nodes that pods of the portal's jobs may use.
    """
    own_pods, foreign_pods = _split_own_pods(pods, wanted)
    highest = max((pod.priority for each in own_pods.values() for pod in each), default=0)
    services, taken = _group_foreign_pods(foreign_pods, highest, gpu)
    selectors = sorted({each for each in (own.selector, *(group.selector for group, _ in services)) if each})
    policy_nodes = [_node(node, taken.get(node.name, NOTHING), selectors, gpu) for node in nodes]
    taints = {taint for node in nodes for taint in node.taints}
    tolerates = _tolerated(own.tolerations, own.selector, taints, selectors)
    policy_services = [
        replace(service, tolerates=_tolerated(group.tolerations, group.selector, taints, selectors))
        for group, service in services
    ]
    # Tolerations of services do not matter here: only their amounts are taken from the nodes.
    placing = _Placing(policy_nodes, policy_services, tolerates)
    return Snapshot(policy_nodes, policy_services, placing.all(wanted, own_pods, gpu), tolerates)


def _split_own_pods(
    pods: Iterable[PodInfo], wanted: Sequence[Wanted]
) -> tuple[dict[tuple[str, str], list[PodInfo]], list[PodInfo]]:
    """Return the pods of the portal's jobs, by the namespace and name of the job, and all other pods.

    Pods that have ended take nothing and are left out.
    """
    own: dict[tuple[str, str], list[PodInfo]] = {job.place: [] for job in wanted}
    foreign: list[PodInfo] = []
    for pod in pods:
        if not pod.over:
            pods_of_job = own.get((pod.namespace, pod.owner)) if pod.kind == _PADDLE_JOB else None
            (foreign if pods_of_job is None else pods_of_job).append(pod)
    return own, foreign


def within(nodes: Sequence[Node], taken: Mapping[str, Amounts], others: Amounts, limit: Amounts) -> list[Node]:
    """Return the nodes with the capacity beyond ``limit``, which admins have set for jobs, marked as taken.

    ``taken``: the amounts that jobs take, by node. ``others``: the amounts that services take of all nodes. Nodes on
    which jobs take least lose their free capacity first, so that the rest is not fragmented.
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


# --- Foreign pods -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Group:
    """Pods with the same owner, requests, priority and placement rules."""

    namespace: str
    kind: str
    owner: str
    needs: Needs
    priority: int
    tolerations: tuple[Toleration, ...]
    selector: Selector


def _group_foreign_pods(
    pods: Iterable[PodInfo], highest: int, gpu: str
) -> tuple[list[tuple[_Group, Service]], dict[str, Amounts]]:
    """Return the services, and the amounts that all other pods take, by node.

    ``highest``: the highest priority of the portal's pods. Stopping pods are those of one service without replicas.
    """
    taken: dict[str, Amounts] = defaultdict(Amounts)
    stopping: dict[str, Amounts] = defaultdict(Amounts)
    bound: dict[_Group, Counter[str]] = defaultdict(Counter)
    missing: Counter[_Group] = Counter()
    for pod in pods:
        need, is_service = _amounts(pod.needs, gpu, up=True), pod.kind in _SERVICES
        if pod.leaving:
            stopping[pod.node] = stopping[pod.node].plus(need)
        elif pod.node and not is_service:
            taken[pod.node] = taken[pod.node].plus(need)
        elif pod.node:
            bound[_group(pod)][pod.node] += 1
        elif pod.kind not in _DAEMONS:
            missing[_group(pod)] += 1
    groups = sorted({*bound, *missing}, key=repr)
    services = [(group, _service(group, bound[group], missing[group], highest, gpu)) for group in groups]
    if stopping:
        gone = Service(_STOPPING, NOTHING, 0, leaving=dict(stopping), priority=_priority(highest, highest))
        services.append((_Group("", "", _STOPPING, Needs(), highest, (), ()), gone))
    return services, dict(taken)


def _group(pod: PodInfo) -> _Group:
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


def _service(group: _Group, bound: Counter[str], missing: int, highest: int, gpu: str) -> Service:
    key = f"{group.namespace}/{group.owner}" if group.kind else group.owner
    need = _amounts(group.needs, gpu, up=True)
    return Service(key, need, bound.total() + missing, dict(bound), priority=_priority(group.priority, highest))


def _priority(priority: int, highest: int) -> int:
    """Map a priority: above that of pods of jobs it comes before all jobs, else after all. Jobs have -1 to 1."""
    return 1 + priority - highest if priority > highest else min(-1, priority - highest - 1)


# --- Nodes ------------------------------------------------------------------------------------------------------------
def _node(node: NodeInfo, taken: Amounts, selectors: Iterable[Selector], gpu: str) -> Node:
    taints = {_taint_text(taint) for taint in node.taints}
    taints |= {_selector_taint(selector) for selector in selectors if not matches(selector, node)}
    return Node(node.name, _amounts(node.allocatable, gpu, up=False), frozenset(taints), taken)


def _tolerated(
    tolerations: Sequence[Toleration], own: Selector, taints: Iterable[Taint], selectors: Iterable[Selector]
) -> frozenset[str]:
    """Return the taints that pods with a selector of their ``own`` tolerate.

    These are the taints that their tolerations cover, and those that stand for the selectors of others.
    """
    covered = frozenset(_taint_text(taint) for taint in taints if any(each.covers(taint) for each in tolerations))
    return covered | frozenset(_selector_taint(selector) for selector in selectors if selector != own)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def _selector_taint(selector: Selector) -> str:
    return f"not chosen by {selector}"


def _amounts(needs: Needs, gpu: str, *, up: bool) -> Amounts:
    memory = -(-needs.memory // _MEGABYTE) if up else needs.memory // _MEGABYTE
    return Amounts(needs.cpu, memory, dict(needs.extended).get(gpu, 0))


# --- Own jobs ---------------------------------------------------------------------------------------------------------
class _Placing:
    """Placement of replicas without a node: on the node with the most free cores, where they will probably go."""

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
        self, wanted: Sequence[Wanted], ours: Mapping[tuple[str, str], list[PodInfo]], gpu: str
    ) -> dict[str, ReplicasByNode]:
        """Return the replicas of all jobs. Those with a node are counted first, because they determine what is free."""
        bound = {job.key: self._bound(job, ours[job.place], gpu) for job in wanted}
        return {job.key: self._whole(job, *bound[job.key]) for job in wanted}

    def _bound(
        self, job: Wanted, pods: Iterable[PodInfo], gpu: str
    ) -> tuple[dict[str, Counter[str]], dict[str, Amounts]]:
        """Return the number of replicas of each role by node, and the amounts of stopping replicas by node."""
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

    def _whole(self, job: Wanted, there: dict[str, Counter[str]], leaving: dict[str, Amounts]) -> ReplicasByNode:
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
        return ReplicasByNode(dict(there.get(_TRAINER, {})), held, leaving, pending)

    def _place(self, need: Amounts) -> str:
        """Return the emptiest node on which a replica fits, else the emptiest one, where capacity will be freed."""
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
