"""Kubernetes events about the controller's actions on a job, for ``kubectl describe``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from jobs.operator.client.api import CONFLICT, KubeApi, Refusal
from jobs.operator.client.resources import EVENTS
from jobs.operator.model import names
from jobs.operator.model.conditions import written
from jobs.operator.model.names import Object

NORMAL, WARNING = "Normal", "Warning"
_LONGEST = 1024  # characters of a message, the API server's limit


class Recorder:
    """Recorder of events. A repeated event increments the count of the first; refusals by the API server are ignored.

    ``later`` runs a function in the background.
    """

    def __init__(
        self, api: KubeApi, now: Callable[[], datetime], later: Callable[[Callable[[], None]], object]
    ) -> None:
        self._api, self._now, self._later = api, now, later

    def record(self, job: Object, kind: str, reason: str, message: str) -> None:
        body = event(job, kind, reason, message[:_LONGEST], self._now())
        self._later(partial(self._try, body))

    def _try(self, body: dict[str, Any]) -> None:
        try:
            self._write(body)
        except Refusal:
            return

    def _write(self, body: dict[str, Any]) -> None:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            self._api.call("POST", EVENTS.path(namespace), body)
        except Refusal as refusal:
            if refusal.status != CONFLICT:
                raise
            known = self._api.call("GET", EVENTS.path(namespace, name))
            change = {"count": int(known.get("count") or 1) + 1, "lastTimestamp": body["lastTimestamp"]}
            self._api.call("PATCH", EVENTS.path(namespace, name), change)


def event(job: Object, kind: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """Return the body of an event; events about one job with equal type, reason and message have the same name."""
    metadata = job["metadata"]
    mark = hashlib.sha256("\n".join((str(metadata["uid"]), kind, reason, message)).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{mark}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": "paddlejob-controller"},
        "count": 1,
        "firstTimestamp": written(now),
        "lastTimestamp": written(now),
    }


def listing(kind: str, found: Sequence[str]) -> str:
    """Format a list of objects such as ``Pod wd-ps-0, wd-ps-1 and 3 more``."""
    shown, rest = sorted(found)[:4], len(found) - 4
    return f"{kind} {', '.join(shown)}" + (f" and {rest} more" if rest > 0 else "")
