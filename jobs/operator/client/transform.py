"""Reduction of objects to the fields that the cache stores, about a tenth of a pod. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobs.operator.model import names
from jobs.operator.model.names import Object

_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("labels", "annotations", "ownerReferences", "finalizers"),
)
_POD_STATUS = ("phase", "podIP", "reason", "message")
_CONTAINER = ("name", "ready", "restartCount", "state")
_POD_LABELS = (names.ATTEMPT_LABEL, names.START_NUMBER_LABEL)
_POD_ANNOTATIONS = (names.RESOURCE_ANNOTATION, names.NUDGE_ANNOTATION)


def trimmed(kind: str, item: Object) -> dict[str, Any]:
    """Return the object with only the fields that are read."""
    body = _TRIMS.get(kind, _metadata_alone)(item)
    return {"kind": kind, **body}


def _some(source: Object | None, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: source[key] for key in keys if source and key in source}


def _metadata_alone(item: Object) -> dict[str, Any]:
    return {"metadata": _some(item["metadata"], _METADATA)}


def _job(item: Object) -> dict[str, Any]:
    return {**item, **_metadata_alone(item)}


def _config_map(item: Object) -> dict[str, Any]:
    return {**_metadata_alone(item), "data": item.get("data") or {}}


def _pod_group(item: Object) -> dict[str, Any]:
    return {**_metadata_alone(item), **_some(item, ("spec", "status"))}


def _pod(item: Object) -> dict[str, Any]:
    metadata = _some(item["metadata"], _METADATA)
    metadata["labels"] = _some(metadata.get("labels"), _POD_LABELS)
    metadata["annotations"] = _some(metadata.get("annotations"), _POD_ANNOTATIONS)
    return {
        "metadata": metadata,
        "spec": _some(item.get("spec"), ("nodeName",)),
        "status": _pod_status(item.get("status") or {}),
    }


def _pod_status(source: Object) -> dict[str, Any]:
    status = _some(source, _POD_STATUS)
    for key in ("initContainerStatuses", "containerStatuses"):
        if source.get(key):
            status[key] = [_some(entry, _CONTAINER) for entry in source[key]]
    refused = [entry for entry in source.get("conditions") or () if entry.get("type") == "PodScheduled"]
    if refused and refused[0].get("status") == "False":
        status["conditions"] = refused
    return status


_TRIMS: Mapping[str, Callable[[Object], dict[str, Any]]] = {
    names.KIND: _job,
    "Pod": _pod,
    "ConfigMap": _config_map,
    "PodGroup": _pod_group,
}
