"""Of several controllers one acts: whoever holds the Lease.

Clocks of machines differ, so nobody compares the time in the Lease with its own: a candidate takes over when it has
seen the same Lease, unchanged, for as long as it lasts. The holder stops acting earlier than that, counted from before
it last asked, so two never act at once.
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
    """``clock`` is monotonic, in seconds; ``now`` is the wall clock, for people who read the Lease."""

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
        self._observed: tuple[str, float] = ("", 0.0)  # version of the Lease, and since when it is seen

    @property
    def leads(self) -> bool:
        return self._renewed is not None and self._clock() - self._renewed < RENEWED_WITHIN

    def campaign(self) -> bool:
        """Take or renew the Lease if that can be. Raises nothing: who cannot ask does not lead for long."""
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
        """Let others take over at once."""
        if not self.leads:
            return
        self._renewed = None
        try:
            lease = self._api.call("GET", self._path())
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                self._api.call("PUT", self._path(), lease)
        except Refusal:
            return  # it runs out by itself

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
                return False  # somebody else was quicker
            raise
        return True

    def _path(self) -> str:
        return LEASES.path(self._namespace, self._name)


class Fenced:
    """An API server to which only the leader writes: whoever has lost the Lease in mid-pass does nothing more."""

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
