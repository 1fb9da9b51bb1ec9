"""The observed state of an attempt, from its PaddleJob and its pods. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobs.backends.base import AttemptView, Container, ControlAddress, ControlMissing, Phase, ReplicaView
from jobs.backends.kubernetes.manifests import BARE_LABEL, CONTROL_PORT, ROLES, replica_of
from jobs.kubernetes_objects import pod_names
from jobs.kubernetes_objects.kubelet_messages import CONFIG_ERROR, no_config_map
from jobs.messages import cluster as messages
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.observed import phase_of, start_number_of
from runtime import contract
from runtime.messages import Template, from_json

_SIGTERM, _SIGKILL = 15, 9
_LONGEST = 500  # characters of a message of Kubernetes

# Waiting reasons of a container that are reported to the user.
_TROUBLE: Mapping[str, Template] = {
    "ErrImagePull": messages.IMAGE_NOT_PULLED,
    "ImagePullBackOff": messages.IMAGE_NOT_PULLED,
    "ErrImageNeverPull": messages.IMAGE_NOT_ON_NODE,
    "InvalidImageName": messages.IMAGE_NAME_INVALID,
    "RegistryUnavailable": messages.IMAGE_REGISTRY_UNAVAILABLE,
    "CreateContainerError": messages.CONTAINER_NOT_CREATED,
    CONFIG_ERROR: messages.CONTAINER_NOT_CREATED,
    "RunContainerError": messages.CONTAINER_NOT_STARTED,
}
# Termination reasons of a container whose program never ran.
_NEVER_RAN = ("StartError", "ContainerCannotRun")
# Phases of a pod that has ended.
_OVER = ("Succeeded", "Failed")


def view(job: Object, pods: Iterable[Object]) -> AttemptView:
    """Return the observed state of the attempt of ``job``; ``pods`` are the pods of the PaddleJob."""
    by_place = {pod_names.place(*pod_names.role_and_index(names.name_of(pod))): pod for pod in pods}
    views = ((place, _replica(job, place, by_place.get(place))) for place in _places(job))
    agent, limits = not _is_bare(job), max_starts(job)
    return AttemptView(
        gone=False,
        replicas=tuple(
            replace(one, agent=agent, granted=None if limits is None else int(limits.get(place, 0)))
            for place, one in views
        ),
    )


def by_job(pods: Iterable[Object]) -> Mapping[str, list[Object]]:
    """Group pods by the name of their PaddleJob."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        found.setdefault((pod["metadata"].get("labels") or {}).get(names.JOB_LABEL, ""), []).append(pod)
    return found


def container(pod: Object) -> Container:
    """Return the container of a replica without an agent."""
    status = pod.get("status") or {}
    states: list[Mapping[str, Any]] = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    ended = phase_of(pod) in _OVER or any("terminated" in state for state in states)
    return Container(names.uid_of(pod), begun=ended or any("running" in state for state in states), ended=ended)


def control_address(pod: Object) -> ControlAddress | None:
    """Return where the agent of the pod listens; None if the pod does not run. Raises ControlMissing."""
    host = (pod.get("status") or {}).get("podIP") or ""
    if phase_of(pod) != "Running" or not host:
        return None
    ports = [port for each in (pod.get("spec") or {}).get("containers") or () for port in each.get("ports") or ()]
    numbers = [int(port["containerPort"]) for port in ports if port.get("name") == CONTROL_PORT["name"]]
    if not numbers:
        raise ControlMissing
    return ControlAddress(host=host, port=numbers[0])


def _is_bare(job: Object) -> bool:
    return BARE_LABEL in (job["metadata"].get("labels") or {})


def starts(job: Object) -> Mapping[str, int]:
    """Return the allowed number of starts of each place."""
    return (job.get("spec") or {}).get("starts") or {}


def max_starts(job: Object) -> Mapping[str, int] | None:
    """Return the starts granted in advance for each place; None where the PaddleJob takes none."""
    limits: Mapping[str, int] | None = (job.get("spec") or {}).get("maxStarts")
    return limits


def is_stopped(job: Object) -> bool:
    return bool(((job.get("spec") or {}).get("runPolicy") or {}).get("suspend"))


def replicas_of(job: Object, role: str) -> int:
    """Return the desired number of replicas of a role of the runtime."""
    return int(((job.get("spec") or {}).get(ROLES[role]) or {}).get("replicas") or 0)


def _places(job: Object) -> Iterator[str]:
    """Yield the places that are desired or have ever had a pod, in the order of roles and indices."""
    made = _made(job)
    for role, theirs in ROLES.items():
        indices = {*range(replicas_of(job, role))}
        indices |= {int(place.rpartition("-")[2]) for place in made if place.rpartition("-")[0] == theirs}
        yield from (pod_names.place(theirs, index) for index in sorted(indices))


def _made(job: Object) -> Mapping[str, int]:
    return (job.get("status") or {}).get("starts") or {}


def _granted(job: Object) -> Mapping[str, int]:
    """Return the starts that the controller has granted itself within ``max_starts``."""
    return (job.get("status") or {}).get("grantedStarts") or {}


def _replica(job: Object, place: str, pod: Object | None) -> ReplicaView:
    name, made = replica_of(place), int(_made(job).get(place, 0))
    allowed = max(int(starts(job).get(place, 1)), int(_granted(job).get(place, 0)))
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
        why = messages.STOPPED() if made else messages.STOPPED_BEFORE_START()
        return ReplicaView(name, Phase.EXITED, signal=_SIGTERM, why=why, start_number=max(made, allowed))
    return ReplicaView(name, Phase.EXITED, signal=_SIGKILL, why=messages.POD_DELETED(), start_number=made)


def _begins(job: Object, place: str, allowed: int, made: int) -> bool:
    """Whether the controller creates another pod in the place. For trainers it does so even after all succeeded."""
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
    """Return why the API server refuses the pods, or why the controller does not create them; empty otherwise."""
    status = job.get("status") or {}
    if status.get("reason") in ("Refused", "InvalidSpec", "NameTaken"):
        return messages.POD_REJECTED(why=_short(str(status.get("message", ""))))
    return ""


def _trouble(job: Object, pod: Object) -> str:
    """Return why the pod does not start; empty if nothing is wrong. Waiting for its peers at first is not a problem."""
    status = pod.get("status") or {}
    for entry in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        if waiting.get("message") == no_config_map(names.name_of(job)):
            continue
        if waiting.get("reason") in _TROUBLE:
            details = _short(str(waiting.get("message") or waiting["reason"]))
            return _TROUBLE[waiting["reason"]](why=details)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return messages.UNSCHEDULABLE(why=_short(str(condition.get("message", ""))))
    return ""


def _ended(job: Object, name: str, pod: Object, start_number: int) -> ReplicaView:
    status = pod.get("status") or {}
    terminated = next(_terminations(status), {})
    report = None if _is_bare(job) else _agent_report(str(terminated.get("message") or ""))
    if report is not None:
        memory, why = bool(report.get("out_of_memory")), from_json(report.get("why") or "")
        code, number = report.get("code"), report.get("signal")
        return ReplicaView(name, Phase.EXITED, code, number, out_of_memory=memory, why=why, start_number=start_number)
    if status.get("reason"):
        details = _short(str(status.get("message") or status["reason"]))
        why = messages.ENDED_BY_NODE(reason=status["reason"], why=details)
        return ReplicaView(name, Phase.LOST, why=why, start_number=start_number)
    ended = _ended_without_report(name, terminated, start_number)
    return _ended_by_itself(ended, terminated) if _is_bare(job) else ended


def _ended_by_itself(ended: ReplicaView, terminated: Mapping[str, Any]) -> ReplicaView:
    """Return the end of a program without an agent: the container's exit code decides, unless the program never ran."""
    if ended.phase is not Phase.EXITED or ended.out_of_memory:
        return ended
    if terminated.get("reason") in _NEVER_RAN:
        details = _short(str(terminated.get("message") or terminated["reason"]))
        return replace(ended, why=messages.NOT_STARTED(why=details))
    return replace(ended, why="")


def _ended_without_report(name: str, terminated: Mapping[str, Any], start_number: int) -> ReplicaView:
    """Return the end of a container that left no agent report: it was killed, or could not be started."""
    code, reason = terminated.get("exitCode"), str(terminated.get("reason") or "")
    if code is None:
        return ReplicaView(name, Phase.LOST, why=messages.POD_ENDED(), start_number=start_number)
    if reason == "OOMKilled":
        why = messages.CONTAINER_OUT_OF_MEMORY()
        return ReplicaView(name, Phase.EXITED, signal=_SIGKILL, out_of_memory=True, why=why, start_number=start_number)
    details = str(terminated.get("message") or "").strip().rpartition("\n")[2]
    if code > 128:
        return ReplicaView(
            name, Phase.EXITED, signal=int(code) - 128, why=messages.CONTAINER_KILLED(), start_number=start_number
        )
    return ReplicaView(
        name,
        Phase.EXITED,
        code=int(code),
        why=messages.AGENT_NOT_STARTED(why=_short(details or reason)),
        start_number=start_number,
    )


def _terminations(status: Object) -> Iterator[Mapping[str, Any]]:
    for entry in status.get("containerStatuses") or ():
        ended = (entry.get("state") or {}).get("terminated")
        if ended:
            yield ended


def _agent_report(message: str) -> Mapping[str, Any] | None:
    """Return the agent's report from a termination message; None where the message is not one of an agent."""
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and "start_number" in report else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
