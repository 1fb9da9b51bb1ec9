"""The reason why a job waits: one reason code and one message. Pure.

Of several reasons the first in ``_CHECKS`` counts: the one that a person can do most about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from jobs.kubernetes_objects.kubelet_messages import CONFIG_ERROR, no_config_map
from jobs.operator.manifests.podgroup import READY
from jobs.operator.model import names
from jobs.operator.model.conditions import written
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed
from jobs.operator.model.spec import Intranet, PaddleJob

Why = tuple[str, str]

# Waiting reasons of a container that do not pass by themselves. CreateContainerConfigError is ignored while the
# ConfigMap does not exist: pods wait for each other by it.
_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_TROUBLE_STARTING = ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ContainerCannotRun")


def why_waiting(job: PaddleJob, observed: Observed, pods: Sequence[Object], not_before: datetime | None) -> Why:
    """Return the reason and message; two empty strings while nothing is wrong."""
    for check in _CHECKS:
        why = check(job, observed, pods)
        if why:
            return why
    if not_before:
        return "BackOff", f"The pods are made again at {written(not_before)}."
    return "", ""


def _refused(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    return ("Refused", observed.refusals[0]) if observed.refusals else None


def _foreign(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    if not observed.foreign:
        return None
    kind, name = min(observed.foreign)
    return "NameTaken", f"{kind} {name} belongs to somebody else. The job waits until it is gone."


def _no_ports(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    if (
        job.intranet is not Intranet.HOST
        or job.annotations.get(names.HOST_PORT_ANNOTATION)
        or observed.block is not None
    ):
        return None
    return (
        "NoHostPorts",
        "All ports for jobs on their nodes' network are given away. The job waits until one has ended.",
    )


def _queued(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    group = observed.pod_group
    phase = str(((group or {}).get("status") or {}).get("phase") or "Pending")
    if group is None or phase in READY or pods:
        return None
    return "Queued", f"Volcano has not let the job in yet: its PodGroup is {phase}."


def _pulling(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    return _first_waiting(pods, _TROUBLE, "ImagePull")


def _starting(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    return _first_waiting(pods, _TROUBLE_STARTING, "ContainerStart")


def _misconfigured(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    if observed.config_map is None:
        return None
    # The message from before the ConfigMap was created remains until the node retries.
    old = no_config_map(job.name)
    return _first_waiting(pods, (CONFIG_ERROR,), "ContainerConfig", but_for=old)


def _unschedulable(job: PaddleJob, observed: Observed, pods: Sequence[Object]) -> Why | None:
    for pod in pods:
        for entry in (pod.get("status") or {}).get("conditions") or ():
            if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
                return "Unschedulable", f"{names.name_of(pod)} finds no node: {entry.get('message', '')}"
    return None


_CHECKS: Sequence[Callable[[PaddleJob, Observed, Sequence[Object]], Why | None]] = (
    _refused,
    _foreign,
    _no_ports,
    _queued,
    _pulling,
    _starting,
    _misconfigured,
    _unschedulable,
)


def _first_waiting(pods: Sequence[Object], reasons: Sequence[str], reason: str, but_for: str = "") -> Why | None:
    for pod, waiting in _waits(pods):
        if waiting.get("reason") in reasons and waiting.get("message", waiting["reason"]) != but_for:
            message = waiting.get("message") or waiting["reason"]
            return reason, f"{names.name_of(pod)}: {message}"[:1000]
    return None


def _waits(pods: Sequence[Object]) -> Iterator[tuple[Object, Object]]:
    for pod in pods:
        status = pod.get("status") or {}
        for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (entry.get("state") or {}).get("waiting")
            if waiting:
                yield pod, waiting
