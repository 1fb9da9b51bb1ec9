"""Synchronisation of the portal's namespaces on the cluster with the objects of ``namespace_manifests.py``.

It keeps no state in memory: a pass reads the existing objects and writes those that are missing or have drifted. Any
number of processes may run passes at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from jobs.messages import cluster as messages
from jobs.operator.client.api import FORBIDDEN, MISSING, KubeApi, Refusal
from jobs.operator.client.resources import JOBS, NAMESPACES, PODS
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.namespace_names import name_of
from jobs.operator.tenants import namespace_manifests as manifests
from jobs.operator.tenants.namespace_manifests import KINDS, ClusterConfig, Tenant

_log = logging.getLogger(__name__)
# Time in which an API server may not yet apply a new binding. It usually takes less than a second, and longer on a
# machine with a high load. A refusal after this time fails the job for good.
_SETTLING_SECONDS = 60.0
_FIELD_MANAGER = {"fieldManager": "regatta", "force": "true"}


class TenantRefused(Exception):
    """The namespace cannot be brought to its desired state. ``passing``: another try may succeed."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.why, self.passing = why, passing


@dataclass(frozen=True)
class Pass:
    """Result of a pass over all namespaces: numbers of objects written and namespaces removed, and error messages.

    ``problems`` is by the name of the portal's namespace.
    """

    written: int
    removed: int
    problems: Mapping[str, str]


class Tenants:
    """The namespaces of one portal. Any call may raise Refusal if the API server refuses a request."""

    def __init__(self, api: KubeApi, cluster: ClusterConfig, clock: Callable[[], float] = time.time) -> None:
        self._api, self._cluster, self._clock = api, cluster, clock

    def ready(self, tenant: Tenant) -> bool:
        """Bring the namespace to its desired state. Return False if another call has to finish that.

        Raises TenantRefused where no other call can, BadReach.
        """
        try:
            self.ensure(tenant)
        except TenantRefused as refused:
            if not refused.passing:
                raise
            return False
        return True

    def ensure(self, tenant: Tenant) -> int:
        """Bring the namespace to its desired state; return the number of objects written.

        Raises TenantRefused, BadReach.
        """
        desired = manifests.objects(tenant, self._cluster)
        made = self._claim(desired[0])
        try:
            return sum(self._bring_about(body) for body in desired)
        except Refusal as refusal:
            if refusal.status == FORBIDDEN and self._clock() < made + _SETTLING_SECONDS:
                why = f"The cluster does not know yet what the portal may do in {names.name_of(desired[0])}."
                raise TenantRefused(why, passing=True) from refusal
            raise

    def sweep(self, tenants: Iterable[Tenant], closed: Iterable[str]) -> Pass:
        """Bring existing namespaces to their desired state, and remove closed ones that are empty.

        Missing namespaces are not created here: each is created for its first job.
        """
        there = {names.name_of(item) for item in self._ours()}
        written, removed, problems = 0, 0, {}
        for tenant in tenants:
            if name_of(tenant.name, self._cluster.prefix) in there:
                try:
                    written += self.ensure(tenant)
                except (TenantRefused, Refusal) as problem:
                    problems[tenant.name] = str(problem)
        for closed_name in closed:
            name = name_of(closed_name, self._cluster.prefix)
            if name in there:
                try:
                    removed += self._remove(name)
                except Refusal as problem:
                    problems[closed_name] = str(problem)
        return Pass(written, removed, problems)

    # --- Reading -----------------------------------------------------------------------------------------------------
    def present(self) -> list[str]:
        """Return the portal's names of the namespaces that exist on the cluster."""
        return [str(item["metadata"]["labels"].get(manifests.NAMESPACE_LABEL, "")) for item in self._ours()]

    def _ours(self) -> list[Object]:
        selector = f"{manifests.MANAGED_LABEL}={manifests.MANAGER},{manifests.PORTAL_LABEL}={self._cluster.portal}"
        return list(self._api.call("GET", NAMESPACES.path(), query={"labelSelector": selector})["items"])

    def _actual(self, desired: Object) -> Object | None:
        """Return the existing object; None for a Secret, which the portal may not read and so writes each time."""
        return None if desired["kind"] == "Secret" else self._get(_path(desired))

    def _get(self, path: str) -> Object | None:
        try:
            return self._api.call("GET", path)
        except Refusal as refusal:
            if refusal.status != MISSING:
                raise
            return None

    # --- Writing -----------------------------------------------------------------------------------------------------
    def _claim(self, namespace: Object) -> float:
        """Create the namespace, or check that it belongs to this portal; return its creation time (unix time).

        Raises TenantRefused.
        """
        name = names.name_of(namespace)
        actual = self._get(_path(namespace))
        if actual is None:
            self._write(namespace, None)
            return self._clock()
        if names.is_leaving(actual):
            why = f"The namespace {name} is being removed from the cluster; it is created again when that is done."
            raise TenantRefused(why, passing=True)
        if not manifests.is_ours(actual, self._cluster):
            raise TenantRefused(
                messages.CLUSTER_NAMESPACE_FOREIGN(
                    name=name,
                    label=f"{manifests.PORTAL_LABEL}={self._cluster.portal}",
                    other=f"{manifests.MANAGED_LABEL}={manifests.MANAGER}",
                )
            )
        since = actual["metadata"].get("creationTimestamp")
        return datetime.fromisoformat(since).timestamp() if since else 0.0

    def _bring_about(self, body: Object) -> bool:
        actual = self._actual(body)
        return manifests.drifted(body, actual) and self._write(body, actual)

    def _write(self, body: Object, actual: Object | None) -> bool:
        """Write this portal's fields of the object; an object of a kind in ``WHOLE`` is replaced as a whole."""
        _log.info("Writing %s.", _path(body))
        if actual is not None and body["kind"] in manifests.WHOLE:
            version = {"resourceVersion": actual["metadata"].get("resourceVersion")}
            self._api.call("PUT", _path(body), {**body, "metadata": {**body["metadata"], **version}})
        else:
            self._api.call("APPLY", _path(body), body, query=_FIELD_MANAGER)
        return True

    def _remove(self, name: str) -> bool:
        """Delete the jobs of the namespace, then the namespace once it is empty; return True if it was deleted.

        The jobs go first, so that their controller deletes the pods in order.
        """
        jobs = [item for item in self._list(JOBS.path(name)) if not names.is_leaving(item)]
        for job in jobs:
            self._delete(JOBS.path(name, names.name_of(job)), propagationPolicy="Foreground")
        if jobs or self._list(JOBS.path(name)) or self._list(PODS.path(name)):
            return False
        self._delete(NAMESPACES.path(name=name))
        return True

    def _list(self, path: str) -> list[Object]:
        try:
            return list(self._api.call("GET", path)["items"])
        except Refusal as refusal:
            if refusal.status != MISSING:
                raise
            return []

    def _delete(self, path: str, **options: str) -> None:
        try:
            self._api.call("DELETE", path, options)
        except Refusal as refusal:
            if refusal.status != MISSING:
                raise


def address_of_the_api(api: KubeApi) -> list[tuple[str, int]]:
    """Return the addresses and ports of the cluster's API servers."""
    path = "/api/v1/namespaces/default/endpoints/kubernetes"
    return [
        (str(address["ip"]), int(port["port"]))
        for subset in api.call("GET", path).get("subsets", ())
        for address in subset.get("addresses", ())
        for port in subset.get("ports", ())
    ]


def _path(body: Object) -> str:
    metadata = body["metadata"]
    return KINDS[body["kind"]].path(metadata.get("namespace", ""), metadata["name"])
