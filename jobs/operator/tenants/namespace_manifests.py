"""The objects of a portal's namespace on the cluster, and which of them have drifted. Pure.

A namespace grants its pods no rights on the cluster. Its pods reach each other, the cluster's DNS, and the addresses
that the installation names (the portal's ingest, the storage, the registry). They reach nothing else, and never the API
server or the cloud's metadata service.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from jobs.operator.client.resources import NAMESPACES, Resource
from jobs.operator.manifests.podgroup import amount_of
from jobs.operator.model.names import Object
from jobs.operator.model.namespace_names import name_of

Network = IPv4Network | IPv6Network
Peer = Mapping[str, Any]

# Labels on every object: its manager and portal. The namespace also has a label with its name in the portal.
MANAGED_LABEL, MANAGER = "app.kubernetes.io/managed-by", "regatta"
PORTAL_LABEL = "regatta/portal"
NAMESPACE_LABEL = "regatta/namespace"

PULL_SECRET = "regatta-pull"  # noqa: S105  a name
TENANT_ROLE = "regatta-tenant"  # ClusterRole of the portal, in each of its namespaces: deploy/kubernetes
QUOTA, LIMITS, BINDING = "regatta-quota", "regatta-limits", "regatta-portal"
DENY, ALLOW_OWN, ALLOW_DNS, ALLOW_PLATFORM = "deny-all", "allow-own-pods", "allow-dns", "allow-platform"
ALLOW_CONTROL = "allow-portal-control"

# Metadata services, from which clouds serve credentials: link-local addresses, and the IPv6 address of AWS.
METADATA: tuple[Network, ...] = (ip_network("169.254.0.0/16"), ip_network("fe80::/10"), ip_network("fd00:ec2::/32"))

KINDS: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (
        NAMESPACES,
        Resource("ServiceAccount", "/api/v1", "serviceaccounts"),
        Resource("Secret", "/api/v1", "secrets"),
        Resource("ResourceQuota", "/api/v1", "resourcequotas"),
        Resource("LimitRange", "/api/v1", "limitranges"),
        Resource("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies"),
        Resource("Role", "/apis/rbac.authorization.k8s.io/v1", "roles"),
        Resource("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    )
}
_API_OF = {kind: resource.prefix.removeprefix("/apis/").removeprefix("/api/") for kind, resource in KINDS.items()}
# Creation order: the binding gives the portal the rights for the rest, and network policies exist before pods.
ORDER = tuple(KINDS)
# Where agents listen for the portal: ``runtime.control.identity.PORT``, which this package may not import. From other
# namespaces only the portal's web and sweep pods reach it: the sweep takes the stacks of a stalled job. Pods of the
# same namespace do too, because port ranges need Kubernetes 1.22; they hold no key of the handshake.
CONTROL_PORT = 7071
CONTROLLING_PODS = ("portal-web", "portal-sweep")
_DNS_PORTS = ({"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53})
# Requests and limits of a container without its own.
_DEFAULTS = {"cpu": "500m", "memory": "268435456"}


class BadReach(ValueError):
    """An address that the installation names as reachable must not be."""


@dataclass(frozen=True)
class Reach:
    """External addresses that pods may reach. ``peers`` as in a NetworkPolicy; ``ports``: TCP."""

    peers: tuple[Peer, ...]
    ports: tuple[int, ...]

    @classmethod
    def address(cls, address: str, port: int) -> Reach:
        """Return the reach of one address, IPv4 or IPv6. Raises ValueError."""
        return cls(({"ipBlock": {"cidr": str(ip_network(address))}},), (port,))


@dataclass(frozen=True)
class Tenant:
    """A namespace of the portal. ``limits`` and ``borrow`` as in its quota: cores, bytes, devices; None: no limit."""

    name: str
    limits: Mapping[str, float | None]
    borrow: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterConfig:
    """Configuration of the installation's cluster.

    ``portal``: distinguishes this portal from others on the cluster. ``account``: the portal's ServiceAccount as
    ``namespace/name``, empty if the portal is not a pod. ``api``: addresses and ports of the API server.
    ``credentials``: a Docker configuration for pulling images. ``max_pods``: the maximum number of pods in a namespace.
    """

    portal: str
    prefix: str = ""
    account: str = ""
    reach: tuple[Reach, ...] = ()
    api: tuple[tuple[str, int], ...] = ()
    gpu: str = "nvidia.com/gpu"
    credentials: str = ""
    max_pods: int = 1024


# --- Desired objects -------------------------------------------------------------------------------------------------
def objects(tenant: Tenant, cluster: ClusterConfig) -> tuple[Object, ...]:
    """Return all objects of the namespace, in creation order. Raises BadReach."""
    name = name_of(tenant.name, cluster.prefix)
    return tuple(_labelled(body, cluster, tenant) for body in _bodies(name, tenant, cluster))


def _bodies(name: str, tenant: Tenant, cluster: ClusterConfig) -> Iterator[dict[str, Any]]:
    yield _namespace(name)
    if cluster.account:
        yield _binding(name, cluster.account)
    yield _account(name, cluster)
    if cluster.credentials:
        yield _pull_secret(name, cluster.credentials)
    yield _quota(name, tenant, cluster)
    yield _limits(name, tenant)
    yield from policies(name, cluster)


def _labelled(body: dict[str, Any], cluster: ClusterConfig, tenant: Tenant) -> Object:
    labels = {MANAGED_LABEL: MANAGER, PORTAL_LABEL: cluster.portal}
    if body["kind"] == "Namespace":
        labels |= {NAMESPACE_LABEL: tenant.name}
    given = body["metadata"].get("labels", {})
    return {**body, "metadata": {**body["metadata"], "labels": {**given, **labels}}}


def _object(kind: str, namespace: str, name: str, **content: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": _API_OF[kind], "kind": kind, "metadata": {"name": name, **where}, **content}


def _namespace(name: str) -> dict[str, Any]:
    body = _object("Namespace", "", name)
    # Clusters with Pod Security Admission refuse pods that need more rights than the platform's pods.
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    body["metadata"]["labels"] = levels
    return body


def _account(name: str, cluster: ClusterConfig) -> dict[str, Any]:
    """Return the default service account of pods. It has no rights, and pods get no token of it."""
    pull = [{"name": PULL_SECRET}] if cluster.credentials else []
    return _object("ServiceAccount", name, "default", automountServiceAccountToken=False, imagePullSecrets=pull)


def _binding(name: str, account: str) -> dict[str, Any]:
    """Return the binding of the portal's rights in this namespace only."""
    where, _, account_name = account.partition("/")
    return _object(
        "RoleBinding",
        name,
        BINDING,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TENANT_ROLE},
        subjects=[{"kind": "ServiceAccount", "namespace": where, "name": account_name}],
    )


def _pull_secret(name: str, credentials: str) -> dict[str, Any]:
    data = {".dockerconfigjson": base64.b64encode(credentials.encode()).decode()}
    return _object("Secret", name, PULL_SECRET, type="kubernetes.io/dockerconfigjson", data=data)


def _quota(name: str, tenant: Tenant, cluster: ClusterConfig) -> dict[str, Any]:
    """Return the portal's quota as a ResourceQuota: the cluster refuses excess pods if the portal makes an error."""
    hard = {"pods": str(cluster.max_pods), "services.loadbalancers": "0", "services.nodeports": "0"}
    for resource, kinds in _counted(cluster).items():
        limit = tenant.limits.get(resource)
        if limit is not None:
            most = limit + tenant.borrow.get(resource, 0.0)
            hard |= dict.fromkeys(kinds, _quantity(resource, most))
    return _object("ResourceQuota", name, QUOTA, spec={"hard": hard})


def _counted(cluster: ClusterConfig) -> Mapping[str, tuple[str, ...]]:
    return {
        # Requests count, not limits: above its request a pod may use idle cores of its node.
        "cpu": ("requests.cpu",),
        "memory": ("requests.memory", "limits.memory"),
        "gpu": (f"requests.{cluster.gpu}",),
    }


def _quantity(resource: str, amount: float) -> str:
    return f"{math.ceil(amount * 1000)}m" if resource == "cpu" else str(math.ceil(amount))


def _limits(name: str, tenant: Tenant) -> dict[str, Any]:
    """Return small defaults for containers without limits, which the quota would refuse."""
    most = {
        resource: _quantity(resource, (tenant.limits.get(resource) or 0) + tenant.borrow.get(resource, 0.0))
        for resource in _DEFAULTS
        if tenant.limits.get(resource) is not None
    }
    default = {name: min(value, most.get(name, value), key=amount_of) for name, value in _DEFAULTS.items()}
    # No maximum of cores: their limit is what a pod may use on an idle node, and may exceed the namespace's quota.
    top = {name: value for name, value in most.items() if name != "cpu"}
    item = {"type": "Container", "default": default, "defaultRequest": default} | ({"max": top} if top else {})
    return _object("LimitRange", name, LIMITS, spec={"limits": [item]})


# --- Network policies ------------------------------------------------------------------------------------------------
def policies(name: str, cluster: ClusterConfig) -> Iterator[dict[str, Any]]:
    everybody: dict[str, Any] = {"podSelector": {}}
    own: list[Peer] = [{"podSelector": {}}]
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    both, out = ["Ingress", "Egress"], ["Egress"]
    yield _policy(name, DENY, **everybody, policyTypes=both)
    yield _policy(name, ALLOW_OWN, **everybody, policyTypes=both, ingress=[{"from": own}], egress=[{"to": own}])
    yield _policy(name, ALLOW_DNS, **everybody, policyTypes=out, egress=[{"to": [dns], "ports": list(_DNS_PORTS)}])
    if cluster.account:
        pods = {"key": "app.kubernetes.io/name", "operator": "In", "values": list(CONTROLLING_PODS)}
        portal = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.account.partition("/")[0]}},
            "podSelector": {"matchExpressions": [pods]},
        }
        control = {"from": [portal], "ports": [{"protocol": "TCP", "port": CONTROL_PORT}]}
        yield _policy(name, ALLOW_CONTROL, **everybody, policyTypes=["Ingress"], ingress=[control])
    rules = [_rule(reach, cluster.api) for reach in cluster.reach]
    if rules:
        yield _policy(name, ALLOW_PLATFORM, **everybody, policyTypes=out, egress=rules)


def _policy(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return _object("NetworkPolicy", namespace, name, spec=spec)


def _rule(reach: Reach, api: Sequence[tuple[str, int]]) -> dict[str, Any]:
    if not reach.ports:
        raise BadReach("What pods may reach needs its ports: without them a whole address would be open to them.")
    peers = [_guarded(peer, reach.ports, api) for peer in reach.peers]
    return {"to": peers, "ports": [{"protocol": "TCP", "port": port} for port in reach.ports]}


def _guarded(peer: Peer, ports: tuple[int, ...], api: Sequence[tuple[str, int]]) -> Peer:
    """Return the peer without the addresses that no pod may reach. Raises BadReach if none remain."""
    if "ipBlock" not in peer:
        return peer
    block = ip_network(peer["ipBlock"]["cidr"])
    closed = [*METADATA, *(ip_network(address) for address, port in api if port in ports)]
    inside = [each for each in closed if _holds(block, each)]
    if any(_holds(each, block) for each in closed):
        raise BadReach(
            f"{block} on {_listed(ports)} is the API server or the cloud's metadata, which no pod may reach."
        )
    without = sorted({*map(str, inside), *peer["ipBlock"].get("except", ())})
    return {"ipBlock": {"cidr": str(block), **({"except": without} if without else {})}}


def _holds(outer: Network, inner: Network) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, IPv6Network) and inner.subnet_of(outer)


def _listed(ports: Iterable[int]) -> str:
    return "port " + ", ".join(map(str, ports))


# --- Drift -----------------------------------------------------------------------------------------------------------
# Kinds that an added field changes: another rule opens a network policy, another selector exempts pods from it.
WHOLE = frozenset({"ResourceQuota", "LimitRange", "NetworkPolicy"})
# Fields with amounts by name, which the API server normalises.
_AMOUNTS = frozenset({"hard", "max", "default", "defaultRequest"})


def drifted(desired: Object, actual: Object | None) -> bool:
    """Whether the object is missing or differs from the desired one.

    Additions by others count only where they change the effect of the object (``WHOLE``).
    """
    if actual is None or not _within(desired, actual, whole=False):
        return True
    return desired["kind"] in WHOLE and not _within(desired["spec"], actual.get("spec"), whole=True)


def _within(desired: Any, actual: Any, *, whole: bool) -> bool:
    """Whether ``actual`` contains ``desired``; with ``whole``, nothing else besides."""
    if isinstance(desired, Mapping):
        return isinstance(actual, Mapping) and _all_within(desired, actual, whole=whole)
    if isinstance(desired, list | tuple):
        if not isinstance(actual, list | tuple) or len(desired) != len(actual):
            return False
        return all(_within(one, other, whole=whole) for one, other in zip(desired, actual, strict=True))
    return bool(desired == actual)


def _all_within(desired: Mapping[str, Any], actual: Mapping[str, Any], *, whole: bool) -> bool:
    if whole and not actual.keys() <= desired.keys():
        return False
    return all(
        _same_amounts(value, actual.get(key)) if key in _AMOUNTS else _within(value, actual.get(key), whole=whole)
        for key, value in desired.items()
        if value != [] or actual.get(key)
    )


def _same_amounts(desired: Mapping[str, str], actual: object) -> bool:
    """Whether the amounts are equal. An added amount counts as a difference, since it is another limit."""
    if not isinstance(actual, Mapping) or actual.keys() != desired.keys():
        return False
    return all(amount_of(value) == amount_of(actual[key]) for key, value in desired.items())


def is_ours(actual: Object, cluster: ClusterConfig) -> bool:
    labels = actual["metadata"].get("labels") or {}
    return labels.get(MANAGED_LABEL) == MANAGER and labels.get(PORTAL_LABEL) == cluster.portal
