"""Patches that make kubelets retry pods that wait for the ConfigMap of their job. Pure.

A kubelet that finds no ConfigMap for a container retries after ten seconds or more. Any change of the pod makes it
retry at once. So once the ConfigMap exists, the pods that still wait get an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from jobs.kubernetes_objects.kubelet_messages import CONFIG_ERROR
from jobs.operator.model import names
from jobs.operator.model.actions import Patch
from jobs.operator.model.conditions import moment_of
from jobs.operator.model.names import Object

# Seconds after the creation of the ConfigMap: its event reaches nodes separately from the pod's, and maybe later.
_PAUSE = 1.0


def patches(pods: Sequence[Object], config_map: Object | None, now: datetime) -> Iterator[Patch]:
    """Yield the patches of waiting pods; none before ``due``."""
    moment = due(pods, config_map)
    if config_map is None or moment is None or now < moment:
        return
    for pod in _unpatched(pods, config_map):
        change = {"metadata": {"annotations": {names.NUDGE_ANNOTATION: names.uid_of(config_map)}}}
        yield Patch("Pod", names.name_of(pod), change)


def due(pods: Sequence[Object], config_map: Object | None) -> datetime | None:
    """Return the time from which waiting pods are patched; None if there are none."""
    if config_map is None or not _unpatched(pods, config_map):
        return None
    made = moment_of(config_map["metadata"].get("creationTimestamp"))
    return made + timedelta(seconds=_PAUSE) if made else None


def _unpatched(pods: Sequence[Object], config_map: Object) -> list[Object]:
    uid = names.uid_of(config_map)
    return [
        pod
        for pod in pods
        if _is_waiting(pod) and (pod["metadata"].get("annotations") or {}).get(names.NUDGE_ANNOTATION) != uid
    ]


def _is_waiting(pod: Object) -> bool:
    return any(
        ((entry.get("state") or {}).get("waiting") or {}).get("reason") == CONFIG_ERROR
        for entry in (pod.get("status") or {}).get("containerStatuses") or ()
    )
