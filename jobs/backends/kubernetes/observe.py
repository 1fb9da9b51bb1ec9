"""From a PaddleJob and its pods to what is seen of an attempt. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobs.backends.base import AttemptView, Container, Phase, ReplicaView
from jobs.backends.kubernetes.manifests import BARE_LABEL, ROLES, replica_of
from jobs.kubernetes_objects import pod_names
from jobs.kubernetes_objects.kubelet_messages import CONFIG_ERROR, no_config_map
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.observed import phase_of, start_number_of
from runtime import contract

_SIGTERM, _SIGKILL = 15, 9
_LONGEST = 500  # characters of what Kubernetes says

# Of what a container waits for, what a person has to know.
_TROUBLE: Mapping[str, str] = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "ErrImageNeverPull": "its image is not on the node",
    "InvalidImageName": "the name of its image cannot be read",
    "RegistryUnavailable": "the registry of its image does not answer",
    "CreateContainerError": "its container cannot be made",
    CONFIG_ERROR: "its container cannot be made",
    "RunContainerError": "its container cannot be started",
}
# Reasons of a container's end before its program began.
_NEVER_RAN = ("StartError", "ContainerCannotRun")
# Phases of a pod that has ended.
_OVER = ("Succeeded", "Failed")
# Reasons of a pod's end that are the node's doing.
_NODES = "the node ended it"


def view(job: Object, pods: Iterable[Object]) -> AttemptView:
    """What is seen of the attempt of ``job``; ``pods`` are those of the PaddleJob."""
    by_place = {pod_names.place(*pod_names.role_and_index(names.name_of(pod))): pod for pod in pods}
    views = (_replica(job, place, by_place.get(place)) for place in _places(job))
    agent = not _is_bare(job)
    return AttemptView(gone=False, replicas=tuple(replace(one, agent=agent) for one in views))


def container(pod: Object) -> Container:
    """What runs as a replica without an agent."""
    status = pod.get("status") or {}
    states: list[Mapping[str, Any]] = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    ended = phase_of(pod) in _OVER or any("terminated" in state for state in states)
    return Container(names.uid_of(pod), begun=ended or any("running" in state for state in states), ended=ended)


def _is_bare(job: Object) -> bool:
    return BARE_LABEL in (job["metadata"].get("labels") or {})


def starts(job: Object) -> Mapping[str, int]:
    """How many pods each place may have had."""
    return (job.get("spec") or {}).get("starts") or {}


def is_stopped(job: Object) -> bool:
    return bool(((job.get("spec") or {}).get("runPolicy") or {}).get("suspend"))


def replicas_of(job: Object, role: str) -> int:
    """How many replicas of our role are wished for."""
    return int(((job.get("spec") or {}).get(ROLES[role]) or {}).get("replicas") or 0)


def _places(job: Object) -> Iterator[str]:
    """Those that are wanted and those that ever were, in the order of roles and indices."""
    made = _made(job)
    for role, theirs in ROLES.items():
        indices = {*range(replicas_of(job, role))}
        indices |= {int(place.rpartition("-")[2]) for place in made if place.rpartition("-")[0] == theirs}
        yield from (pod_names.place(theirs, index) for index in sorted(indices))


def _made(job: Object) -> Mapping[str, int]:
    return (job.get("status") or {}).get("starts") or {}


def _replica(job: Object, place: str, pod: Object | None) -> ReplicaView:
    name, made, allowed = replica_of(place), int(_made(job).get(place, 0)), int(starts(job).get(place, 1))
    if pod is None:
        return _absent(job, name, place, made, allowed)
    start_number = start_number_of(pod) or 1
    if phase_of(pod) in _OVER:
        if _begins(job, place, allowed, start_number):
            return ReplicaView(name, Phase.STARTING, start_number=allowed)
        return _ended(job, name, pod, start_number)
    if phase_of(pod) == "Running":
        return ReplicaView(name, Phase.RUNNING, start_number=start_number)
    return ReplicaView(name, Phase.STARTING, why=_trouble(job, pod), start_number=start_number)


def _absent(job: Object, name: str, place: str, made: int, allowed: int) -> ReplicaView:
    if _begins(job, place, allowed, made):
        return ReplicaView(name, Phase.STARTING, why=_refusal(job), start_number=allowed)
    if is_stopped(job) or not _is_desired(job, place) or _phase_of_job(job) in ("Completed", "Failed"):
        why = "was asked to stop" if made else "was stopped before it began"
        return ReplicaView(name, Phase.EXITED, signal=_SIGTERM, why=why, start_number=max(made, allowed))
    return ReplicaView(name, Phase.EXITED, signal=_SIGKILL, why="was killed: its pod was deleted", start_number=made)


def _begins(job: Object, place: str, allowed: int, made: int) -> bool:
    """Whether the controller makes a pod more in the place: of trainers also after all have succeeded."""
    if allowed <= made or is_stopped(job) or not _is_desired(job, place):
        return False
    phase = _phase_of_job(job)
    return phase != "Failed" and (phase != "Completed" or place.rpartition("-")[0] == ROLES[contract.TRAINER])


def _phase_of_job(job: Object) -> str:
    return str((job.get("status") or {}).get("phase", ""))


def _is_desired(job: Object, place: str) -> bool:
    role, _, index = place.rpartition("-")
    return int(index) < int(((job.get("spec") or {}).get(role) or {}).get("replicas") or 0)


def _refusal(job: Object) -> str:
    """What the API server says of pods that it does not let be made; and that nobody makes them, where it is so."""
    status = job.get("status") or {}
    if status.get("reason") in ("Refused", "InvalidSpec", "NameTaken"):
        return f"the cluster refuses it: {_short(str(status.get('message', '')))}"
    return ""


def _trouble(job: Object, pod: Object) -> str:
    """What keeps it from starting. That it waits for the others, as all do at first, is none."""
    status = pod.get("status") or {}
    for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        if waiting.get("message") == no_config_map(names.name_of(job)):
            continue
        if waiting.get("reason") in _TROUBLE:
            details = _short(str(waiting.get("message") or waiting["reason"]))
            return f"{_TROUBLE[waiting['reason']]}: {details}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"it finds no node: {_short(str(condition.get('message', '')))}"
    return ""


def _ended(job: Object, name: str, pod: Object, start_number: int) -> ReplicaView:
    status = pod.get("status") or {}
    terminated = next(_terminations(status), {})
    report = None if _is_bare(job) else _agent_report(str(terminated.get("message") or ""))
    if report is not None:
        memory, why = bool(report.get("out_of_memory")), str(report.get("why") or "")
        code, number = report.get("code"), report.get("signal")
        return ReplicaView(name, Phase.EXITED, code, number, out_of_memory=memory, why=why, start_number=start_number)
    if status.get("reason"):
        details = _short(str(status.get("message") or status["reason"]))
        return ReplicaView(name, Phase.LOST, why=f"{_NODES} ({status['reason']}): {details}", start_number=start_number)
    ended = _ended_without_report(name, terminated, start_number)
    return _ended_by_itself(ended, terminated) if _is_bare(job) else ended


def _ended_by_itself(ended: ReplicaView, terminated: Mapping[str, Any]) -> ReplicaView:
    """Of a program without an agent the container's end is its own; the exit code says all, unless it never ran."""
    if ended.phase is not Phase.EXITED or ended.out_of_memory:
        return ended
    if terminated.get("reason") in _NEVER_RAN:
        details = _short(str(terminated.get("message") or terminated["reason"]))
        return replace(ended, why=f"could not be started: {details}")
    return replace(ended, why="")


def _ended_without_report(name: str, terminated: Mapping[str, Any], start_number: int) -> ReplicaView:
    """The container was killed, or could not be started."""
    code, reason = terminated.get("exitCode"), str(terminated.get("reason") or "")
    if code is None:
        return ReplicaView(name, Phase.LOST, why="its pod ended and left no word of how", start_number=start_number)
    if reason == "OOMKilled":
        why = "ran out of memory: the node killed its container"
        return ReplicaView(name, Phase.EXITED, signal=_SIGKILL, out_of_memory=True, why=why, start_number=start_number)
    details = str(terminated.get("message") or "").strip().rpartition("\n")[2]
    if code > 128:
        return ReplicaView(
            name, Phase.EXITED, signal=int(code) - 128, why="its container was killed", start_number=start_number
        )
    return ReplicaView(
        name,
        Phase.EXITED,
        code=int(code),
        why=f"its agent did not start: {_short(details or reason)}",
        start_number=start_number,
    )


def _terminations(status: Object) -> Iterator[Mapping[str, Any]]:
    for entry in status.get("containerStatuses") or ():
        ended = (entry.get("state") or {}).get("terminated")
        if ended:
            yield ended


def _agent_report(message: str) -> Mapping[str, Any] | None:
    """What the agent left behind; None where it is nothing of an agent's."""
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and "start_number" in report else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
