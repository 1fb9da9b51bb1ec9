"""Leader election by a Lease: of several controllers only the holder acts.

Clocks of machines differ, so no candidate compares the time in the Lease with its own clock. A candidate takes over
when it has observed the Lease unchanged for the Lease's duration. The holder stops acting earlier than that, counted
from before its last renewal request, so two controllers never act at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jobs.operator.client.api import CONFLICT, MISSING, KubeApi, Refusal
from jobs.operator.client.resources import LEASES
from jobs.operator.model.names import Object

LASTS, RENEWED_WITHIN, EVERY = 15.0, 10.0, 2.0  # seconds


class Election:
    """Candidate for leadership.

    ``clock`` is monotonic, in seconds; ``now`` is the wall clock, for people who read the Lease.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._api, self._namespace, self._name, self._identity = api, namespace, name, identity
        self._clock, self._now = clock, now
        self._renewed: float | None = None
        self._observed: tuple[str, float] = ("", 0.0)  # version of the Lease, and when it was first observed

    @property
    def leads(self) -> bool:
        return self._renewed is not None and self._clock() - self._renewed < RENEWED_WITHIN

    def campaign(self) -> bool:
        """Acquire or renew the Lease if possible; return whether this candidate leads.

        Raises no Refusal: a candidate that cannot renew stops leading after ``RENEWED_WITHIN`` seconds.
        """
        started = self._clock()
        try:
            held = self._try_acquire()
        except Refusal:
            return self.leads
        if held:
            self._renewed = started
        elif self._renewed is not None:
            self._renewed = None
        return self.leads

    def resign(self) -> None:
        """Release the Lease, so that another candidate can take over at once."""
        if not self.leads:
            return
        self._renewed = None
        try:
            lease = self._api.call("GET", self._path())
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                self._api.call("PUT", self._path(), lease)
        except Refusal:
            return  # the Lease expires by itself

    def _try_acquire(self) -> bool:
        try:
            lease = self._api.call("GET", self._path())
        except Refusal as refusal:
            if refusal.status != MISSING:
                raise
            return self._write("POST", {"metadata": {"name": self._name, "namespace": self._namespace}}, "")
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        if holder not in ("", self._identity) and not self._has_run_out(lease):
            return False
        return self._write("PUT", lease, holder)

    def _has_run_out(self, lease: dict[str, Any]) -> bool:
        version = str(lease["metadata"]["resourceVersion"])
        if version != self._observed[0]:
            self._observed = (version, self._clock())
        lasts = float((lease.get("spec") or {}).get("leaseDurationSeconds") or LASTS)
        return self._clock() - self._observed[1] >= lasts

    def _write(self, method: str, lease: dict[str, Any], holder: str) -> bool:
        moment = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(lease.get("spec") or {})
        if holder != self._identity:
            spec |= {"acquireTime": moment, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": int(LASTS), "renewTime": moment}
        body = {**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        path = self._path() if method == "PUT" else LEASES.path(self._namespace)
        try:
            self._api.call(method, path, body)
        except Refusal as refusal:
            if refusal.status == CONFLICT:
                return False  # another candidate was faster
            raise
        return True

    def _path(self) -> str:
        return LEASES.path(self._namespace, self._name)


class Fenced:
    """API server that refuses writes of a former leader, even in the middle of a pass."""

    def __init__(self, api: KubeApi, leads: Callable[[], bool]) -> None:
        self._api, self._leads = api, leads

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        if method != "GET" and not self._leads():
            raise Refusal(0, "NotLeading", "Another controller may lead by now.")
        return self._api.call(method, path, body, query)

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        return self._api.watch(path, query, seconds)
