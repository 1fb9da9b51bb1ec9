"""Counts of the pods of a role by state. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from jobs.kubernetes_objects import pod_names
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.observed import phase_of

COUNTS = ("pending", "starting", "running", "failed", "succeeded", "unknown")


def state_of(pod: Object) -> str:
    """Return the state of a pod, one of ``COUNTS``."""
    status = pod.get("status") or {}
    return {
        "Pending": "starting" if _is_coordinating(status) else "pending",
        "Running": "running" if _is_up(status) else "starting",
        "Failed": "failed",
        "Succeeded": "succeeded",
    }.get(phase_of(pod), "unknown")


def _is_coordinating(status: Object) -> bool:
    return any(
        entry.get("name") == names.COORDINATION_CONTAINER and (entry.get("state") or {}).get("running") is not None
        for entry in status.get("initContainerStatuses") or ()
    )


def _is_up(status: Object) -> bool:
    return all(entry.get("ready") for entry in status.get("initContainerStatuses") or ()) and all(
        entry.get("ready") and (entry.get("state") or {}).get("running") is not None
        for entry in status.get("containerStatuses") or ()
    )


def role_status(counted: Iterable[Object], all_pods: Sequence[Object]) -> dict[str, Any]:
    """Return the status of a role: counts of the pods in ``counted``, references to all of its pods."""
    states = Counter(map(state_of, counted))
    return {
        "replicas": sum(states.values()),
        **{state: states[state] for state in COUNTS},
        "refs": [_reference(pod) for pod in sorted(all_pods, key=names.name_of)],
    }


def _reference(pod: Object) -> dict[str, str]:
    metadata = pod["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
    }
    return reference | {"uid": str(metadata.get("uid", ""))}


def role_of(pod: Object) -> str:
    """Return the role of a pod from its annotation, else from its name."""
    annotation = (pod["metadata"].get("annotations") or {}).get(names.RESOURCE_ANNOTATION)
    return str(annotation or pod_names.role_and_index(names.name_of(pod))[0])


def container_restarts(pods: Iterable[Object]) -> int:
    """Return how often nodes have restarted containers of running pods."""
    running = ((pod.get("status") or {}) for pod in pods if phase_of(pod) == "Running")
    return sum(
        int(entry.get("restartCount", 0))
        for status in running
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    )
