"""The PaddleJob and the Secret of a launch plan. Pure.

The replicas of a role share a template. A pod reads its identity from its labels. Values for the agent only come from
the Secret as environment variables: user code could read a file, but not the environment of the agent.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from jobs.backends.base import LaunchPlan, ReplicaPlan
from jobs.frameworks.definitions import PADDLE
from jobs.frameworks.peer_env import WITH_GLOO
from jobs.kubernetes_objects import pod_names
from jobs.operator.model import names
from jobs.operator.model.namespace_names import name_of
from runtime import contract
from runtime.control import identity

Manifest = dict[str, Any]

# Names of the roles in a PaddleJob.
ROLES: Mapping[str, str] = {
    contract.MASTER: names.MASTER,
    contract.PSERVER: names.PS,
    contract.TRAINER: names.WORKER,
}

# Labels on all objects of an attempt.
JOB_LABEL, ATTEMPT_LABEL, NUMBER_LABEL = "regatta/job", "regatta/attempt", "regatta/number"

# Paths in a pod.
WORKSPACE = PurePosixPath("/regatta")
DATA, CHECKPOINTS = WORKSPACE / "data", PurePosixPath("/checkpoints")
HOME = PurePosixPath("/home/notebook")
# Paths in an image, as the builder lays it out.
PLATFORM_PYTHON = PurePosixPath("/opt/regatta/bin/python")
CODE = PurePosixPath("/opt/job/code")
USER = 10001

# The agent takes AGENT_MEMORY bytes of a replica's memory, at most one part in AGENT_PART.
AGENT_MEMORY, AGENT_PART = 48 * 2**20, 8
# Seconds after the grace in which the agent sends the last lines; then the node kills it.
FLUSH_SECONDS = 8
# Seconds that a pod tolerates a node that is not ready or unreachable; then the replica starts elsewhere.
_SILENCE = 30
# Variables that go into the Secret. The user's variables may be confidential.
SECRET = (
    *(contract.INGEST_TOKEN, contract.WIRE_SECRET, contract.CONTROL_KEY),
    *(contract.COORDINATION, contract.USER_ENVIRONMENT, contract.CLIENT_TOKEN),
)
# The name of a pod's one container.
CONTAINER = "replica"
# The container's port where its agent listens for the portal. A pod without it is of a release without the channel.
CONTROL_PORT: Mapping[str, Any] = {"name": "control", "containerPort": identity.PORT, "protocol": "TCP"}
# Label of a PaddleJob whose pods have no agent. Of the plan's variables they get these: size and work of the job.
BARE_LABEL = "regatta/bare"
BARE_VARIABLES = (contract.TRAINERS, contract.PASSES, contract.DATASET)


# Fields of a pod's specification by which an installation chooses the nodes for jobs.
PLACEMENT = ("nodeSelector", "affinity", "tolerations")


@dataclass(frozen=True)
class Mount:
    """A file system mounted at ``path`` in pods and on the portal. ``volume``: a pod's volume without its name."""

    path: PurePosixPath
    volume: Mapping[str, Any]
    writable: bool = False


@dataclass(frozen=True)
class Cluster:
    """Configuration of the installation's cluster.

    ``image``: for jobs without an image of their own. ``prefix``: of the names of namespaces. ``gpu``: the resource
    name of a GPU. ``data``: mounts of datasets; datasets outside them are fetched. ``checkpoints``: a volume for the
    checkpoints of the namespace's jobs; None: checkpoints are not kept. ``homes``: a volume for the homes of the
    namespace's notebooks; None: they end with the notebook's job. ``burst``: cores that a small replica may use
    while its node has idle cores. ``placement``: fields of a pod that choose its nodes. ``replaces``: whether the
    controller may replace lost pods within starts that the portal grants in advance.
    """

    image: str
    prefix: str = ""
    gpu: str = "nvidia.com/gpu"
    data: Sequence[Mount] = ()
    checkpoints: Mapping[str, Any] | None = None
    homes: Mapping[str, Any] | None = None
    pull_secret: str = ""
    placement: Mapping[str, Any] = field(default_factory=dict)
    shared_memory: int = 64 * 2**20
    local_storage: int = 2 * 2**30
    burst: float = 1.0
    replaces: bool = False
    extra_environment: Mapping[str, str] = field(default_factory=dict)


def job_name(attempt_id: str) -> str:
    """Return the name of an attempt's PaddleJob and of its Secret."""
    return f"attempt-{re.sub('[^a-z0-9]+', '-', attempt_id.lower())}"[:48].rstrip("-")


def pod_name(attempt_id: str, replica: str) -> str:
    role, _, index = replica.rpartition("-")
    return pod_names.pod_name(job_name(attempt_id), ROLES[role], int(index))


def place_of(replica: str) -> str:
    """Return the key of the replica in ``spec.starts``."""
    role, _, index = replica.rpartition("-")
    return pod_names.place(ROLES[role], int(index))


def replica_of(place: str) -> str:
    """Return the name of the replica at a place of the PaddleJob."""
    role, _, index = place.rpartition("-")
    return f"{next(ours for ours, theirs in ROLES.items() if theirs == role)}-{index}"


# --- The Secret ------------------------------------------------------------------------------------------------------
def secret(plan: LaunchPlan, cluster: Cluster) -> Manifest:
    """Return the Secret with the values for the agents only; keys are ``<role>.<variable>``."""
    known = {
        f"{role}.{variable}": base64.b64encode(value.encode()).decode()
        for role, replicas in _by_role(plan.replicas)
        for variable, value in _secrets(plan, replicas[0])
    }
    metadata = _metadata(plan, cluster)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": known}


def _secrets(plan: LaunchPlan, replica: ReplicaPlan) -> Iterator[tuple[str, str]]:
    if plan.agents:
        given = {
            contract.INGEST_TOKEN: plan.ingest_token,
            contract.WIRE_SECRET: plan.wire_secret,
            contract.CONTROL_KEY: plan.control_key,
        }
        variables = {**replica.environment, **given}
        yield from ((variable, variables[variable]) for variable in SECRET if variables.get(variable))
    else:
        # The user's own variables one by one: there is no agent to unpack them.
        yield from json.loads(replica.environment.get(contract.USER_ENVIRONMENT, "{}")).items()


# --- The PaddleJob ---------------------------------------------------------------------------------------------------
def paddle_job(plan: LaunchPlan, cluster: Cluster) -> Manifest:
    roles = {
        ROLES[role]: {"replicas": len(replicas), "template": template(plan, replicas[0], cluster)}
        for role, replicas in _by_role(plan.replicas)
    }
    spec = {
        **roles,
        # By address: Paddle's and PyTorch's processes find their peers by the addresses in the controller's ConfigMap.
        "intranet": "PodIP",
        "withGloo": WITH_GLOO if plan.framework == PADDLE else 0,
        # The result of a replica is read from its pod; pods are deleted with the PaddleJob.
        "cleanPodPolicy": "Never",
        # The portal decides about restarts, not the controller.
        "starts": {},
    }
    if cluster.replaces and plan.agents:
        # The portal fills it once the job runs. A schema without the field drops it, and nothing is granted.
        spec["maxStarts"] = {}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": _metadata(plan, cluster), "spec": spec}


def _metadata(plan: LaunchPlan, cluster: Cluster) -> Manifest:
    return {
        "name": job_name(plan.ref.attempt_id),
        "namespace": name_of(plan.namespace, cluster.prefix),
        "labels": _labels(plan),
    }


def _labels(plan: LaunchPlan) -> dict[str, str]:
    ref = plan.ref
    bare = {} if plan.agents else {BARE_LABEL: "true"}
    return {JOB_LABEL: ref.job_id, ATTEMPT_LABEL: ref.attempt_id, NUMBER_LABEL: str(ref.number), **bare}


def _by_role(replicas: Sequence[ReplicaPlan]) -> Iterator[tuple[str, list[ReplicaPlan]]]:
    for role in ROLES:
        found = sorted((one for one in replicas if one.role == role), key=lambda one: one.index)
        if found:
            yield role, found


# --- A pod -----------------------------------------------------------------------------------------------------------
def template(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> Manifest:
    """Return the pod template of the role."""
    volumes = dict(_volumes(replica, cluster))
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(plan.grace.total_seconds()),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
            | {"tolerationSeconds": _SILENCE}
            for what in ("not-ready", "unreachable")
        ],
        "containers": [_container(plan, replica, cluster, volumes)],
        "volumes": [{"name": name, **volume} for name, (_, volume, _) in volumes.items()],
    }
    tolerations = [*spec["tolerations"], *cluster.placement.get("tolerations", ())]
    spec |= {**cluster.placement, "tolerations": tolerations}
    if cluster.pull_secret:
        spec["imagePullSecrets"] = [{"name": cluster.pull_secret}]
    return {"metadata": {"labels": _labels(plan)}, "spec": spec}


def grace_seconds(grace: float) -> int:
    """Return the seconds between the node's SIGTERM to the agent and its SIGKILL."""
    return math.ceil(grace) + FLUSH_SECONDS


def _container(
    plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster, volumes: Mapping[str, tuple[PurePosixPath, Any, bool]]
) -> Manifest:
    held = {"cpu": _cores(replica.cpu), "memory": str(replica.memory)}
    # The cluster names the GPU resource; a limit is also a request.
    held |= {cluster.gpu: str(replica.gpu)} if replica.gpu else {}
    held["ephemeral-storage"] = str(cluster.local_storage)
    # A fifth of a core starts Python in ten seconds, so replicas may use idle cores; the node shares them by requests.
    limits = {**held, "cpu": _cores(max(replica.cpu, cluster.burst))}
    return {
        "name": CONTAINER,
        "image": plan.image or cluster.image,
        **_started(plan, replica),
        **({"ports": [CONTROL_PORT]} if _has_control(plan) else {}),
        "env": list(_environment(plan, replica, cluster)),
        "resources": {"requests": held, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": name, "mountPath": str(path), **({"readOnly": True} if read_only else {})}
            # Of the volume of homes, a pod sees that of its own namespace.
            | ({"subPath": f"homes/{replica.home}"} if name == "home" and cluster.homes is not None else {})
            for name, (path, _, read_only) in volumes.items()
        ],
    }


def _has_control(plan: LaunchPlan) -> bool:
    return plan.agents and bool(plan.control_key)


def _cores(cpu: float) -> str:
    return f"{math.ceil(cpu * 1000)}m"


def _started(plan: LaunchPlan, replica: ReplicaPlan) -> Manifest:
    """Return the command, working directory and pull policy of the container.

    A user's own image defines the working directory, and the command if the job has none. It is always pulled, because
    the image behind its tag may have changed.
    """
    command = [_literal(argument) for argument in replica.command]
    if not plan.agents:
        return {"imagePullPolicy": "Always", **({"command": command} if command else {})}
    agent = [str(PLATFORM_PYTHON), "-m", "runtime.agent.pod_entrypoint", "--"]
    return {"imagePullPolicy": "IfNotPresent", "command": [*agent, *command], "workingDir": str(WORKSPACE)}


def _volumes(replica: ReplicaPlan, cluster: Cluster) -> Iterator[tuple[str, tuple[PurePosixPath, Any, bool]]]:
    """Yield the name of each volume, and its mount path, its source, and whether it is read-only."""
    yield "workspace", (WORKSPACE, {"emptyDir": {}}, False)
    yield "tmp", (PurePosixPath("/tmp"), {"emptyDir": {}}, False)  # noqa: S108  the pod's own
    memory = {"medium": "Memory", "sizeLimit": str(min(cluster.shared_memory, replica.memory))}
    yield "shm", (PurePosixPath("/dev/shm"), {"emptyDir": memory}, False)  # noqa: S108  the pod's own
    for number, mount in enumerate(cluster.data):
        yield f"data-{number}", (mount.path, dict(mount.volume), not mount.writable)
    if cluster.checkpoints is not None and not replica.runs_user_code:
        yield "checkpoints", (CHECKPOINTS, dict(cluster.checkpoints), False)
    if replica.home:
        yield "home", (HOME, dict(cluster.homes or {"emptyDir": {}}), False)


def _environment(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> Iterator[Manifest]:
    """Yield the container's environment, variables read from labels first: others refer to them."""
    for name, field_path in (
        (contract.INDEX, f"metadata.labels['{names.INDEX_LABEL}']"),
        (contract.START_NUMBER, f"metadata.labels['{names.START_NUMBER_LABEL}']"),
        (contract.ADDRESS, "status.podIP"),
    ):
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}
    yield {"name": contract.REPLICA, "value": f"{replica.role}-$({contract.INDEX})"}
    for name, _ in _secrets(plan, replica):
        reference = {"name": job_name(plan.ref.attempt_id), "key": f"{replica.role}.{name}"}
        yield {"name": name, "valueFrom": {"secretKeyRef": reference}}
    plain = _plain(plan, replica, cluster) if plan.agents else _plain_of_bare(plan, replica, cluster)
    for name, value in sorted(plain.items()):
        yield {"name": name, "value": _literal(value)}


def _plain(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> dict[str, str]:
    own = (contract.INDEX, contract.START_NUMBER, contract.ADDRESS, contract.REPLICA, *SECRET)
    stated = {name: value for name, value in replica.environment.items() if name not in own}
    mounted = _mounted(replica, cluster)
    decided = {
        contract.JOB_ID: plan.ref.job_id,
        contract.ATTEMPT_ID: plan.ref.attempt_id,
        contract.ATTEMPT: str(plan.ref.number),
        contract.ROLE: replica.role,
        contract.REPLICA_DIR: str(WORKSPACE),
        contract.WORK_DIR: str(WORKSPACE / "work"),
        contract.OUTPUT_DIR: str(WORKSPACE / "output"),
        contract.GRACE_SECONDS: f"{plan.grace.total_seconds():g}",
        contract.LOG_CAP: str(plan.log_cap),
        contract.LIMIT_MEMORY: str(replica.memory - min(AGENT_MEMORY, replica.memory // AGENT_PART)),
        contract.LIMIT_PROCESSES: str(replica.processes),
        contract.LIMIT_CPU_SECONDS: str(replica.cpu_seconds),
        contract.TERMINATION_FILE: "/dev/termination-log",
        contract.DATA_PATH: ":".join(map(str, [DATA, *mounted])),
    }
    if stated.get(contract.DATASET) and not mounted:
        decided[contract.FETCH_DATA] = str(DATA)
    if _has_control(plan):
        decided[contract.CONTROL_PORT] = str(identity.PORT)
    if not coordination_url(replica):
        decided[contract.COORDINATION] = f"sqlite:///{WORKSPACE / 'coordination.sqlite3'}"
    if plan.image and replica.runs_user_code:
        decided[contract.CODE_DIR] = str(CODE)
    if replica.home:
        decided[contract.NOTEBOOK_HOME] = str(HOME)
    if cluster.checkpoints is not None and not replica.runs_user_code:
        decided[contract.CHECKPOINT_DIR] = str(CHECKPOINTS / plan.ref.job_id)
    return {**cluster.extra_environment, **stated, **decided}


def _plain_of_bare(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> dict[str, str]:
    """Return variables without any access to the platform. The user's own variables, in the Secret, take precedence."""
    variables = {
        contract.JOB_ID: plan.ref.job_id,
        contract.ATTEMPT: str(plan.ref.number),
        contract.ROLE: replica.role,
        # The home directory of the image may not be writable for this user id.
        "HOME": str(WORKSPACE),
        **{name: replica.environment[name] for name in BARE_VARIABLES if replica.environment.get(name)},
        **{name: value for name, value in replica.environment.items() if contract.is_parameter(name)},
    }
    if mounted := _mounted(replica, cluster):
        variables[contract.DATA_PATH] = ":".join(map(str, mounted))
    own = {name for name, _ in _secrets(plan, replica)}
    return {name: value for name, value in variables.items() if name not in own}


def is_unmounted(replica: ReplicaPlan, cluster: Cluster) -> bool:
    """Whether the replica has a dataset that is not mounted in its pod."""
    return bool(replica.environment.get(contract.DATASET)) and not _mounted(replica, cluster)


def _mounted(replica: ReplicaPlan, cluster: Cluster) -> list[PurePosixPath]:
    """Return the data paths of the replica that are mounted in its pod."""
    paths = _paths(replica.environment.get(contract.DATA_PATH, ""))
    return [path for path in paths if _is_mounted(path, cluster.data)]


def coordination_url(replica: ReplicaPlan) -> str:
    """Return the coordination store of the attempt's processes; empty for a framework that does not need one."""
    return replica.environment.get(contract.COORDINATION, "")


def _paths(value: str) -> Iterator[PurePosixPath]:
    return (PurePosixPath(part) for part in value.split(":") if part)


def _is_mounted(path: PurePosixPath, mounts: Iterable[Mount]) -> bool:
    return any(path.is_relative_to(mount.path) for mount in mounts)


def _literal(text: str) -> str:
    """Escape ``$(NAME)``, which Kubernetes would replace by a variable."""
    return text.replace("$(", "$$(")
