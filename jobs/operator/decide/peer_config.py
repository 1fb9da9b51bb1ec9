"""The ConfigMap with the addresses of a job's pods, and whether it is out of date. Pure.

Containers read it once, when they start. If the pods have changed, the ConfigMap of a job whose processes can reconnect
is updated; every other job is restarted as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from jobs.operator.decide.host_ports import pod_port
from jobs.operator.manifests.configmap import config_map
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, address_of, attempt_of
from jobs.operator.model.spec import Intranet, PaddleJob


def is_out_of_date(job: PaddleJob, observed: Observed, attempt: int) -> bool:
    """Whether the ConfigMap lists pods that no longer exist, or lacks some."""
    recorded = _recorded_members(observed.config_map, attempt)
    if recorded is None:
        return False
    if set(recorded) != {name for name, _, _ in job.pod_names()}:
        return True
    return any(_has_moved(observed.pods_by_name.get(name), was) for name, was in recorded.items() if was)


def desired_config_map(
    job: PaddleJob, pods: Mapping[str, Object], current: Object | None, attempt: int
) -> Object | None:
    """Return the desired ConfigMap; None until every pod has an address. ``pods`` are by name."""
    addresses = {name: address_of(pods[name]) for name, _, _ in job.pod_names() if name in pods}
    port = port_of(job, current)
    if len(addresses) < job.total or not all(addresses.values()) or port is None:
        return None
    return config_map(job, addresses, {name: names.uid_of(pod) for name, pod in pods.items()}, port, attempt)


def port_of(job: PaddleJob, current: Object | None) -> int | None:
    """Return the first port of each pod's block; None while a job on its nodes' network has no block."""
    if job.intranet is Intranet.SERVICE:
        return names.PORT
    if job.intranet is Intranet.HOST:
        annotation = job.annotations.get(names.HOST_PORT_ANNOTATION, "")
        return int(annotation) if annotation.isdecimal() else None
    recorded = ((current or {}).get("data") or {}).get("PADDLE_PORT", "")
    return int(recorded) if recorded.isdecimal() else pod_port(job.uid)


def _recorded_members(current: Object | None, attempt: int) -> Mapping[str, str] | None:
    """Return the members recorded in the current ConfigMap; None without one, or if it is one of paddle-operator."""
    if current is None or names.is_leaving(current) or attempt_of(current, attempt) != attempt:
        return None
    annotation = (current["metadata"].get("annotations") or {}).get(names.MEMBERS_ANNOTATION)
    return json.loads(annotation) if annotation else None


def _has_moved(pod: Object | None, was: str) -> bool:
    if pod is None or names.is_leaving(pod):
        return True
    uid, _, address = was.partition(" ")
    return names.uid_of(pod) != uid or address_of(pod) not in ("", address)
