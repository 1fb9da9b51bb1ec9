"""How the pods of a role are doing, counted. Pure."""

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
    """One of ``COUNTS``."""
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
    """Status of a role: counts of the pods that count, references to all that there are."""
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
    """The role of a pod: the annotation's word, else its name's."""
    annotation = (pod["metadata"].get("annotations") or {}).get(names.RESOURCE_ANNOTATION)
    return str(annotation or pod_names.role_and_index(names.name_of(pod))[0])


def container_restarts(pods: Iterable[Object]) -> int:
    """How often nodes have started containers of running pods again."""
    running = ((pod.get("status") or {}) for pod in pods if phase_of(pod) == "Running")
    return sum(
        int(entry.get("restartCount", 0))
        for status in running
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    )
