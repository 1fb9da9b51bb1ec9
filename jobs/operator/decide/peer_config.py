"""Whether the ConfigMap still tells where everybody is. Pure.

Containers read it once, when they start. Where its pods have changed, a job whose processes meet again by themselves
gets its ConfigMap written anew; every other job is started anew as a whole.
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
    """Whether pods were told of others that are not there any more, or were not told of some."""
    recorded = _recorded_members(observed.config_map, attempt)
    if recorded is None:
        return False
    if set(recorded) != {name for name, _, _ in job.pod_names()}:
        return True
    return any(_has_moved(observed.pods_by_name.get(name), was) for name, was in recorded.items() if was)


def desired_config_map(
    job: PaddleJob, pods: Mapping[str, Object], current: Object | None, attempt: int
) -> Object | None:
    """The ConfigMap to have, once every pod has an address. ``pods`` are by name; None: it is too early."""
    addresses = {name: address_of(pods[name]) for name, _, _ in job.pod_names() if name in pods}
    port = port_of(job, current)
    if len(addresses) < job.total or not all(addresses.values()) or port is None:
        return None
    return config_map(job, addresses, {name: names.uid_of(pod) for name, pod in pods.items()}, port, attempt)


def port_of(job: PaddleJob, current: Object | None) -> int | None:
    """First port of each pod's block; None while a job on its nodes' network has not been given any."""
    if job.intranet is Intranet.SERVICE:
        return names.PORT
    if job.intranet is Intranet.HOST:
        annotation = job.annotations.get(names.HOST_PORT_ANNOTATION, "")
        return int(annotation) if annotation.isdecimal() else None
    recorded = ((current or {}).get("data") or {}).get("PADDLE_PORT", "")
    return int(recorded) if recorded.isdecimal() else pod_port(job.uid)


def _recorded_members(current: Object | None, attempt: int) -> Mapping[str, str] | None:
    """Members by the present ConfigMap; None where there is none, or where one of paddle-operator tells nothing."""
    if current is None or names.is_leaving(current) or attempt_of(current, attempt) != attempt:
        return None
    annotation = (current["metadata"].get("annotations") or {}).get(names.MEMBERS_ANNOTATION)
    return json.loads(annotation) if annotation else None


def _has_moved(pod: Object | None, was: str) -> bool:
    if pod is None or names.is_leaving(pod):
        return True
    uid, _, address = was.partition(" ")
    return names.uid_of(pod) != uid or address_of(pod) not in ("", address)
