"""Parser of a PaddleJob: its specification as types, and error messages for invalid parts. Pure.

The API server has validated the object against the schema (``crd.py``); this module checks constraints that a schema of
Kubernetes 1.20 cannot express. ``read`` never raises: it reports invalid parts in ``problems``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from jobs.kubernetes_objects import pod_names
from jobs.operator.model import names
from jobs.operator.model.failure_policy import Rule, rules_of
from jobs.operator.model.names import Object

_Enum = TypeVar("_Enum", bound=StrEnum)


class CleanPodPolicy(StrEnum):
    """Deletion of pods when the job has ended. The default is ON_COMPLETION."""

    ALWAYS = "Always"
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ON_COMPLETION = "OnCompletion"


# Published manifests have two misspelt policies. paddle-operator treats both as Never: "Nerver" (the examples
# wide_and_deep_podip.yaml and wide_and_deep_service.yaml since v0.2.0) and "OnFailed", which means OnFailure here.
CLEAN_POD_POLICIES: Mapping[str, CleanPodPolicy] = {
    **{policy.value: policy for policy in CleanPodPolicy},
    "": CleanPodPolicy.ON_COMPLETION,
    "OnFailed": CleanPodPolicy.ON_FAILURE,
    "Nerver": CleanPodPolicy.NEVER,
}


class Intranet(StrEnum):
    """Kind of address by which pods reach each other."""

    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


class Mode(StrEnum):
    PS = "PS"
    COLLECTIVE = "Collective"
    SINGLE = "Single"


@dataclass(frozen=True)
class Role:
    """A role of the job. ``replicas`` is already within ``least`` and ``most``, which equal it without bounds."""

    name: str
    replicas: int
    least: int
    most: int
    template: Object

    @property
    def containers(self) -> list[Object]:
        return list((self.template.get("spec") or {}).get("containers") or [])


@dataclass(frozen=True)
class RunPolicy:
    """Run policy of the job. Durations are in seconds; None: no limit."""

    suspend: bool = False
    active_deadline: float | None = None
    ttl: float | None = None
    backoff_limit: int | None = None
    stall: float | None = None
    managed_by: str = names.CONTROLLER


@dataclass(frozen=True)
class SchedulingPolicy:
    """Scheduling policy of the job.

    ``timeout``: seconds that pods of a gang may hold nodes while others find none; None: the controller's setting.
    """

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""
    min_resources: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None


@dataclass(frozen=True)
class SuccessPolicy:
    """Success policy: the job is completed when ``every`` pod of the roles, or else any one, has succeeded."""

    roles: tuple[str, ...]
    every: bool = True


@dataclass(frozen=True)
class PaddleJob:
    """A parsed PaddleJob.

    ``starts``: the creator of the job sets how many pods each place may have had; None: the controller decides about
    restarts. ``max_starts``: up to how many pods of a place the controller may then replace a lost one by itself.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    leaving: bool
    roles: Mapping[str, Role]
    clean: CleanPodPolicy
    intranet: Intranet
    with_gloo: int
    elastic: int | None
    run: RunPolicy
    scheduling: SchedulingPolicy
    success: SuccessPolicy
    failure_rules: tuple[Rule, ...]
    starts: Mapping[str, int] | None
    max_starts: Mapping[str, int]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    status: Object
    problems: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def mode(self) -> Mode:
        if names.PS in self.roles:
            return Mode.PS
        worker = self.roles.get(names.WORKER)
        return Mode.COLLECTIVE if worker and worker.most > 1 else Mode.SINGLE

    @property
    def meets_again(self) -> bool:
        """Whether pods may join and leave one by one.

        The processes find new peers while they run, or the controller is not responsible for that.
        """
        return self.elastic is not None or names.MASTER in self.roles or self.starts is not None

    @property
    def keeps_names(self) -> bool:
        """Whether a pod can be replaced by another of the same name, which its peers find by that name.

        This holds for parameter servers and their trainers. Collective trainers connect once, at the start.
        """
        return self.intranet is Intranet.SERVICE and self.mode is Mode.PS

    @property
    def replaces_alone(self) -> bool:
        return self.meets_again or self.keeps_names

    def starts_of(self, role: str, index: int) -> int:
        """Return the allowed number of starts of a place by ``starts``; 1 where it has no entry."""
        return int((self.starts or {}).get(pod_names.place(role, index), 1))

    def pod_names(self) -> Iterator[tuple[str, Role, int]]:
        for role in self.roles.values():
            for index in range(role.replicas):
                yield pod_names.pod_name(self.name, role.name, index), role, index

    @property
    def total(self) -> int:
        return sum(role.replicas for role in self.roles.values())

    @property
    def gang(self) -> int:
        """Number of pods that must have a node before the job can go on."""
        least = sum(role.least if self.meets_again else role.replicas for role in self.roles.values())
        return least if self.scheduling.min_available is None else min(self.scheduling.min_available, self.total)


def read(item: Object) -> PaddleJob:
    """Parse a PaddleJob from the API server's JSON."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    problems: list[str] = []
    roles = {name: _role(name, spec[name], problems) for name in names.ROLES if spec.get(name) is not None}
    job = PaddleJob(
        name=str(metadata["name"]),
        namespace=str(metadata.get("namespace", "default")),
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        leaving=names.is_leaving(item),
        roles=roles,
        clean=_one_of(spec, "cleanPodPolicy", CLEAN_POD_POLICIES, CleanPodPolicy.ON_COMPLETION, problems),
        intranet=_one_of(
            spec, "intranet", {"": Intranet.POD_IP, **{i.value: i for i in Intranet}}, Intranet.POD_IP, problems
        ),
        with_gloo=int(spec.get("withGloo") or 0),
        elastic=spec.get("elastic"),
        run=_run_policy(spec.get("runPolicy") or {}),
        scheduling=_scheduling(spec.get("schedulingPolicy") or {}),
        success=_success(spec.get("successPolicy") or {}, roles, problems),
        failure_rules=rules_of((spec.get("failurePolicy") or {}).get("rules") or [], problems),
        starts=spec.get("starts"),
        max_starts=(spec.get("maxStarts") or {}) if spec.get("starts") is not None else {},
        annotations=metadata.get("annotations") or {},
        finalizers=tuple(metadata.get("finalizers") or ()),
        status=item.get("status") or {},
        problems=(),
    )
    problems += _whole(job)
    return PaddleJob(**{**vars(job), "problems": tuple(problems)})


def _one_of(spec: Object, key: str, choices: Mapping[str, _Enum], default: _Enum, problems: list[str]) -> _Enum:
    value = spec.get(key) or ""
    if value not in choices:
        problems.append(f'spec.{key} is "{value}". Write one of {", ".join(type(default))}.')
    return choices.get(value, default)


def _role(name: str, body: Object, problems: list[str]) -> Role:
    replicas = int(body.get("replicas") or 0)
    least = _bound(body.get("requests"), replicas)
    most = _bound(body.get("limits"), replicas)
    where = f"spec.{name}"
    if replicas < 1:
        problems.append(f"{where}.replicas is {replicas}. Write 1 or more, or leave {where} out.")
    if least > most:
        problems.append(
            f"{where}.requests ({least}) is more than {where}.limits ({most}). Write the smaller one first."
        )
    role = Role(name, max(least, min(replicas, most)), least, most, body.get("template") or {})
    if not role.containers:
        problems.append(f"{where}.template has no container. Write one with a name and an image.")
    problems += [
        f"{where}.template.spec.containers[{index}] has no image. Write the image that it starts from."
        for index, container in enumerate(role.containers)
        if not container.get("image")
    ]
    return role


def _bound(value: object, replicas: int) -> int:
    """Return a bound of ``replicas``; 0 and a missing value mean no bound, as in paddle-operator."""
    return int(value) if isinstance(value, int) and value > 0 else replicas


def _run_policy(body: Object) -> RunPolicy:
    return RunPolicy(
        suspend=bool(body.get("suspend")),
        active_deadline=body.get("activeDeadlineSeconds"),
        ttl=body.get("ttlSecondsAfterFinished"),
        backoff_limit=body.get("backoffLimit"),
        stall=body.get("stallTimeoutSeconds"),
        managed_by=body.get("managedBy") or names.CONTROLLER,
    )


def _scheduling(body: Object) -> SchedulingPolicy:
    return SchedulingPolicy(
        min_available=body.get("minAvailable"),
        queue=body.get("queue") or "",
        priority_class=body.get("priorityClass") or "",
        min_resources=body.get("minResources") or {},
        timeout=body.get("timeoutSeconds"),
    )


def _success(body: Object, roles: Mapping[str, Role], problems: list[str]) -> SuccessPolicy:
    named = tuple(body.get("roles") or ())
    problems += [
        f'spec.successPolicy names the role "{role}", which the job does not have.'
        for role in named
        if role not in roles
    ]
    # Parameter servers run until they are stopped: they do not count for success, unless there is no other role.
    trained = tuple(role for role in (names.WORKER, names.HETER) if role in roles)[:1]
    return SuccessPolicy(named or trained or tuple(roles), body.get("operator", "All") == "All")


def _whole(job: PaddleJob) -> Iterator[str]:
    """Yield error messages for constraints between the parts of the job."""
    if not job.roles:
        yield "The job has no role. Write spec.worker, and spec.ps for parameter servers."
        return
    longest = max((name for name, _, _ in job.pod_names()), key=len, default="")
    if not names.HOST_NAME.fullmatch(job.name):
        yield (
            f'The name "{job.name}" cannot be part of a host\'s name. Use small letters, digits and "-", and begin '
            "with a letter."
        )
    if len(longest) > names.LABEL_LIMIT:
        spare = len(longest) - names.LABEL_LIMIT
        yield (
            f"The name is too long: its pods would be called {longest}, and a host's name has at most "
            f"{names.LABEL_LIMIT} characters. Make it {spare} shorter."
        )
    if job.elastic is not None and names.WORKER not in job.roles:
        yield "spec.elastic needs spec.worker, whose replicas it may change."
    if (job.scheduling.min_available or 0) > job.total:
        yield (
            f"spec.schedulingPolicy.minAvailable ({job.scheduling.min_available}) is more than the pods of the job "
            f"({job.total})."
        )
