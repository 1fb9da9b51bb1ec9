"""The portal's namespaces on the cluster: desired state for ``jobs/operator``, from the database and the settings.

A namespace is created for its first job. The sweep updates existing namespaces and removes closed ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings

from jobs.backends import factory as backend_factory
from jobs.backends.base import LaunchFailed
from jobs.messages import cluster as messages
from jobs.operator.model.names import Object
from jobs.operator.tenants.namespace_manifests import BadReach, ClusterConfig, Reach, Tenant
from quota import selectors as quota
from rbac.models import Namespace

if TYPE_CHECKING:
    from jobs.operator.tenants.namespace_sync import Tenants

_log = logging.getLogger(__name__)

EVERY = timedelta(seconds=60)
_HTTP_PORTS = {"http": 80, "https": 443}


def ready(namespace: Namespace) -> bool:
    """Create or update the namespace on the cluster before a job is launched in it. False: not ready yet, try again.

    Raises LaunchFailed with a message if that is impossible.
    """
    if not _manages_namespaces():
        return True
    # Imported here: the local backend needs no client of Kubernetes, which takes a second to import.
    from jobs.operator.client.api import Refusal
    from jobs.operator.tenants.namespace_sync import TenantRefused

    try:
        return _tenants().ready(tenant_of(namespace))
    except TenantRefused as refused:
        raise LaunchFailed(refused.why) from refused
    except BadReach as wrong:
        raise LaunchFailed(messages.JOB_NETWORK_RULES_INVALID(error=wrong)) from wrong
    except Refusal as refusal:
        passing = refusal.status in (0, 409, 429) or refusal.status >= 500
        why = messages.JOB_NAMESPACE_NOT_CREATED(error=refusal.message)
        raise LaunchFailed(why, retryable=passing) from refusal


class NamespaceUpdates:
    """Updates the namespaces on the cluster at most once a minute, however often it is called."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if _manages_namespaces() and (self._next is None or now >= self._next):
            self._next = now + EVERY
            sync()


def sync() -> int:
    """Update all namespaces on the cluster and remove closed ones; return the number of objects written or removed."""
    from jobs.operator.client.api import Refusal

    try:
        tenants = _tenants()
        there = Namespace.objects.filter(name__in=tenants.present())
        desired = [tenant_of(each) for each in there.filter(closed=None)]
        closed = there.exclude(closed=None).values_list("name", flat=True)
        done = tenants.sweep(desired, closed)
    except (Refusal, BadReach) as problem:
        _log.warning("The namespaces on the cluster could not be looked at: %s", problem)
        return 0
    for name, why in done.problems.items():
        _log.warning("The namespace %s on the cluster is not as it should be: %s", name, why)
    return done.written + done.removed


def tenant_of(namespace: Namespace) -> Tenant:
    return Tenant(namespace.name, quota.limits_of(namespace), quota.borrowing_of(namespace))


def _manages_namespaces() -> bool:
    return settings.CLUSTER_BACKEND == "kubernetes" and settings.KUBERNETES_NAMESPACES


def _tenants() -> Tenants:
    from jobs.operator.tenants.namespace_sync import Tenants, address_of_the_api

    api = backend_factory.api_server()
    return Tenants(api, settings_of_tenants(address_of_the_api(api)))


def settings_of_tenants(api: Iterable[tuple[str, int]]) -> ClusterConfig:
    """Return the settings that the objects of all tenants share. Raises BadReach."""
    credentials = settings.KUBERNETES_PULL_CREDENTIALS
    return ClusterConfig(
        portal=settings.KUBERNETES_PREFIX.strip("-") or "portal",
        prefix=settings.KUBERNETES_PREFIX,
        account=settings.KUBERNETES_ACCOUNT,
        reach=(*_addresses(), *(_reach(rule) for rule in settings.KUBERNETES_REACH)),
        api=tuple(api),
        gpu=settings.KUBERNETES_GPU,
        credentials=Path(credentials).read_text(encoding="utf-8") if credentials else "",
    )


def _addresses() -> Iterator[Reach]:
    """Yield the endpoints that settings name by IP address; policies select the pods of services by label instead."""
    etcd = (
        (settings.COORDINATION_JOBS or settings.COORDINATION)
        .removeprefix("etcd://")
        .partition("/")[0]
        .rpartition("@")[2]
    )
    servers = [f"//{server}" for server in etcd.split(",") if server]
    for url in (settings.INGEST_URL, f"//{settings.IMAGE_REGISTRY}", *servers):
        parts = urlsplit(url)
        port = parts.port or _HTTP_PORTS.get(parts.scheme)
        if parts.hostname and port and _is_address(parts.hostname):
            yield Reach.address(parts.hostname, port)


def _is_address(host: str) -> bool:
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return False


def _reach(rule: Object) -> Reach:
    """Parse a rule of the settings: ``{"to": [peers of a NetworkPolicy], "ports": [numbers]}``. Raises BadReach."""
    form = 'REGATTA_KUBERNETES_REACH takes [{"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}], "ports": [443]}, ...].'
    if not isinstance(rule, dict) or rule.keys() != {"to", "ports"}:
        raise BadReach(form)
    peers: Any = rule["to"]
    ports: Any = rule["ports"]
    if not isinstance(peers, list) or not isinstance(ports, list) or not all(isinstance(port, int) for port in ports):
        raise BadReach(form)
    return Reach(tuple(peers), tuple(ports))
