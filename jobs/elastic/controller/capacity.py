"""Capacity to share, and jobs by node: of one machine, of a cluster by its API server, or as admins have set it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings

from jobs.backends import factory as backend_factory
from jobs.elastic.inputs import conversions
from jobs.elastic.inputs.cluster_snapshot import NAMELESS, ReplicasByNode, Snapshot, Wanted, snapshot, within
from jobs.elastic.inputs.service_demand import DemandHistory
from jobs.elastic.policy.model import NOTHING, Amounts, Node, Service, total
from jobs.kubernetes_objects.scheduling import placement
from runtime import contract

if TYPE_CHECKING:
    from jobs.elastic.controller.cluster_watch import ClusterState, ClusterWatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tenant:
    """A job that holds amounts.

    ``attempt``: the id of its present attempt. ``roles``: by the runtime's name of the role, the desired number of
    replicas and the request of one. ``held``: all amounts that it holds. ``leaving``: the number of stopping trainers.
    """

    key: str
    namespace: str
    attempt: str
    roles: Mapping[str, tuple[int, Amounts]]
    held: Amounts
    leaving: int
    trainer: Amounts


class Neighbours(NamedTuple):
    """Cores of a cluster: all of them, and those taken by each service, by key. The empty key is all other pods."""

    cores: float
    taken: Mapping[str, float]


@dataclass(frozen=True)
class Layout:
    """The nodes with the jobs and services on them.

    ``tolerates``: the taints that replicas of jobs tolerate. ``is_exact``: a node never takes more than it has.
    ``neighbours``: the cores of a cluster and those taken by others than jobs.
    """

    nodes: list[Node]
    replicas: Mapping[str, ReplicasByNode]
    services: list[Service] = field(default_factory=list)
    tolerates: frozenset[str] = frozenset()
    is_exact: bool = False
    neighbours: Neighbours | None = None


@dataclass
class CapacityReader:
    """Reader of the layout. ``follows``: it is called repeatedly, so that it watches the cluster between the calls."""

    follows: bool = False
    _watch: ClusterWatch | None = None
    _demand_history: DemandHistory = field(default_factory=DemandHistory)
    _warned: bool = False

    def layout(self, tenants: Sequence[Tenant], capacity: Mapping[str, float], now: datetime) -> Layout | None:
        """Return the layout, or None if it is unknown. ``capacity``: the capacity for jobs that admins have set."""
        machine = backend_factory.machine()
        if machine is not None:
            has = {"cpu": machine.cpu, "memory": machine.memory, "gpu": machine.gpu}
            return _on_one(conversions.one_node(machine.name, has, capacity), tenants)
        if settings.CLUSTER_BACKEND == "kubernetes":
            watch = self._cluster_watch()
            state = watch.follow() if self.follows else watch.look()
            if not watch.forbidden:
                return None if state is None else self._on_cluster(state, tenants, capacity, now)
            self._warn_once()
        known = {"cpu", "memory"} <= capacity.keys()
        return _on_one(conversions.one_node("platform", {}, capacity), tenants) if known else None

    def _cluster_watch(self) -> ClusterWatch:
        # Imported here because it takes a second, and a portal that runs jobs on its own machine does not need it.
        from jobs.elastic.controller.cluster_watch import ClusterWatch

        self._watch = self._watch or ClusterWatch(backend_factory.api_server())
        return self._watch

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "The portal may not look at the cluster's nodes and pods (deploy/kubernetes/portal-rights.yaml): "
                "elastic jobs share the capacity that admins have set, and nothing is freed for services in advance."
            )

    def _on_cluster(
        self, state: ClusterState, tenants: Sequence[Tenant], capacity: Mapping[str, float], now: datetime
    ) -> Layout:
        wanted, own = [_wanted(one) for one in tenants], placement(settings.KUBERNETES_PLACEMENT)
        seen = snapshot(state.nodes, state.pods, wanted, settings.KUBERNETES_GPU, own)
        services = self._demand_history.with_history(seen.services, now.timestamp())
        nodes = within(seen.nodes, _taken(seen, tenants), _of(services), conversions.offered(capacity))
        return Layout(nodes, seen.replicas, services, seen.tolerates, is_exact=True, neighbours=_neighbours(seen))


def _on_one(node: Node, tenants: Sequence[Tenant]) -> Layout:
    return Layout([node], {one.key: _replicas_on_one(one, node.name) for one in tenants})


def _replicas_on_one(one: Tenant, node: str) -> ReplicasByNode:
    size = one.roles.get(contract.TRAINER, (0, NOTHING))[0]
    if not one.roles:
        return ReplicasByNode(leaving={node: one.held})
    rest = Amounts(*(max(0, each) for each in one.held.minus(one.trainer.times(size))))
    going = one.trainer.times(one.leaving)
    return ReplicasByNode({node: size}, {node: rest}, {node: going} if going != NOTHING else {})


def _wanted(one: Tenant) -> Wanted:
    from jobs.backends.kubernetes.manifests import ROLES, job_name
    from jobs.operator.model.namespace_names import name_of

    place = name_of(one.namespace, settings.KUBERNETES_PREFIX), job_name(one.attempt) if one.attempt else one.key
    return Wanted(one.key, place, {ROLES[role]: each for role, each in one.roles.items()})


def _taken(seen: Snapshot, tenants: Sequence[Tenant]) -> dict[str, Amounts]:
    """Return the amounts that jobs take, by node."""
    taken: dict[str, Amounts] = {}
    for one in tenants:
        there = seen.replicas[one.key]
        for by_node in (there.held, there.leaving):
            for name, amounts in by_node.items():
                taken[name] = taken.get(name, NOTHING).plus(amounts)
        for name, count in there.trainers.items():
            taken[name] = taken.get(name, NOTHING).plus(one.trainer.times(count))
    return taken


def _of(services: Sequence[Service]) -> Amounts:
    """Return the amounts that services take now."""
    return total(_held(service) for service in services)


def _held(service: Service) -> Amounts:
    return service.need.times(sum(service.bound.values())).plus(total(service.leaving.values()))


def _neighbours(seen: Snapshot) -> Neighbours:
    taken = {"": total(node.taken for node in seen.nodes).cpu}
    for service in seen.services:
        key = "" if service.key in NAMELESS else service.key
        taken[key] = taken.get(key, 0) + _held(service).cpu
    cores = total(node.allocatable for node in seen.nodes).cpu
    return Neighbours(cores / 1000, {key: amount / 1000 for key, amount in taken.items()})
