"""From a launch plan to what the API server is given: a PaddleJob and a Secret. Pure.

A role's replicas share a template. Who a pod is, it reads from its labels; what nobody but its agent may know comes
from the Secret, as variables: a file would be there for the user's code to read, an agent's environment is not.
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

Manifest = dict[str, Any]

# What a role is called in a PaddleJob.
ROLES: Mapping[str, str] = {
    contract.MASTER: names.MASTER,
    contract.PSERVER: names.PS,
    contract.TRAINER: names.WORKER,
}

# Labels of ours on what belongs to an attempt.
JOB_LABEL, ATTEMPT_LABEL, NUMBER_LABEL = "regatta/job", "regatta/attempt", "regatta/number"

# Where things are in a pod.
WORKSPACE = PurePosixPath("/regatta")
DATA, CHECKPOINTS = WORKSPACE / "data", PurePosixPath("/checkpoints")
# Where the builder puts them in an image.
PLATFORM_PYTHON = PurePosixPath("/opt/regatta/bin/python")
CODE = PurePosixPath("/opt/job/code")
USER = 10001

# Of the memory of a replica the agent beside it takes so much, at most this part of it.
AGENT_MEMORY, AGENT_PART = 48 * 2**20, 8
# After the grace the agent still sends the last lines; after that the node kills it.
FLUSH_SECONDS = 8
# A node that says nothing is given up after so long; the replica then starts elsewhere.
_SILENCE = 30
# Variables that go into the Secret. That of the user may hold what nobody else should read.
SECRET = (contract.INGEST_TOKEN, contract.WIRE_SECRET, contract.COORDINATION, contract.USER_ENVIRONMENT)
# The name of a pod's one container.
CONTAINER = "replica"
# Label of a PaddleJob whose pods have no agent. They are told what says who they are and what to work on.
BARE_LABEL = "regatta/bare"
BARE_VARIABLES = (contract.TRAINERS, contract.PASSES, contract.DATASET)


# What an installation may say of the nodes that jobs run on.
PLACEMENT = ("nodeSelector", "affinity", "tolerations")


@dataclass(frozen=True)
class Mount:
    """A file system that pods see at ``path``, where the portal sees it too. ``volume``: a pod's volume without its
    name."""

    path: PurePosixPath
    volume: Mapping[str, Any]
    writable: bool = False


@dataclass(frozen=True)
class Cluster:
    """What the installation says of its cluster. ``image``: for jobs that have none of their own; ``prefix``: before
    the names of namespaces; ``gpu``: the resource that stands for one; ``data``: where datasets are mounted, else they
    are fetched; ``checkpoints``: a volume for those of the namespace's jobs, None: they are kept nowhere; ``burst``:
    cores that a small replica may use while its node has them to spare; ``placement``: fields of a pod that say on
    which nodes it runs.
    """

    image: str
    prefix: str = ""
    gpu: str = "nvidia.com/gpu"
    data: Sequence[Mount] = ()
    checkpoints: Mapping[str, Any] | None = None
    pull_secret: str = ""
    placement: Mapping[str, Any] = field(default_factory=dict)
    shared_memory: int = 64 * 2**20
    local_storage: int = 2 * 2**30
    burst: float = 1.0
    extra_environment: Mapping[str, str] = field(default_factory=dict)


def job_name(attempt_id: str) -> str:
    """The name of an attempt's PaddleJob and of its Secret."""
    return f"attempt-{re.sub('[^a-z0-9]+', '-', attempt_id.lower())}"[:48].rstrip("-")


def pod_name(attempt_id: str, replica: str) -> str:
    role, _, index = replica.rpartition("-")
    return pod_names.pod_name(job_name(attempt_id), ROLES[role], int(index))


def place_of(replica: str) -> str:
    """What the replica is called in ``spec.starts``."""
    role, _, index = replica.rpartition("-")
    return pod_names.place(ROLES[role], int(index))


def replica_of(place: str) -> str:
    """The replica of a place of the PaddleJob."""
    role, _, index = place.rpartition("-")
    return f"{next(ours for ours, theirs in ROLES.items() if theirs == role)}-{index}"


# --- The Secret ------------------------------------------------------------------------------------------------------
def secret(plan: LaunchPlan, cluster: Cluster) -> Manifest:
    """What the agents alone may know; keys are ``<role>.<variable>``."""
    known = {
        f"{role}.{variable}": base64.b64encode(value.encode()).decode()
        for role, replicas in _by_role(plan.replicas)
        for variable, value in _secrets(plan, replicas[0])
    }
    metadata = _metadata(plan, cluster)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": known}


def _secrets(plan: LaunchPlan, replica: ReplicaPlan) -> Iterator[tuple[str, str]]:
    if plan.agents:
        given = {contract.INGEST_TOKEN: plan.ingest_token, contract.WIRE_SECRET: plan.wire_secret}
        variables = {**replica.environment, **given}
        yield from ((variable, variables[variable]) for variable in SECRET if variables.get(variable))
    else:
        # The person's own variables: no agent is there to take them from one.
        yield from json.loads(replica.environment.get(contract.USER_ENVIRONMENT, "{}")).items()


# --- The PaddleJob ---------------------------------------------------------------------------------------------------
def paddle_job(plan: LaunchPlan, cluster: Cluster) -> Manifest:
    roles = {
        ROLES[role]: {"replicas": len(replicas), "template": template(plan, replicas[0], cluster)}
        for role, replicas in _by_role(plan.replicas)
    }
    spec = {
        **roles,
        # By address: Paddle's and PyTorch's processes find one another by what the controller tells of these.
        "intranet": "PodIP",
        "withGloo": WITH_GLOO if plan.framework == PADDLE else 0,
        # How pods have ended is read from them; they go with the PaddleJob.
        "cleanPodPolicy": "Never",
        # Who is started again is the portal's to say.
        "starts": {},
    }
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
    """The pod of any replica of the role."""
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
    """How long a node waits between its SIGTERM to the agent and its SIGKILL."""
    return math.ceil(grace) + FLUSH_SECONDS


def _container(
    plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster, volumes: Mapping[str, tuple[PurePosixPath, Any, bool]]
) -> Manifest:
    held = {"cpu": _cores(replica.cpu), "memory": str(replica.memory)}
    # What a GPU is, the cluster says; a limit is a request as well.
    held |= {cluster.gpu: str(replica.gpu)} if replica.gpu else {}
    held["ephemeral-storage"] = str(cluster.local_storage)
    # A fifth of a core starts Python in ten seconds. What the node has idle may be used: it is shared out by requests.
    limits = {**held, "cpu": _cores(max(replica.cpu, cluster.burst))}
    return {
        "name": CONTAINER,
        "image": plan.image or cluster.image,
        **_started(plan, replica),
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
            for name, (path, _, read_only) in volumes.items()
        ],
    }


def _cores(cpu: float) -> str:
    return f"{math.ceil(cpu * 1000)}m"


def _started(plan: LaunchPlan, replica: ReplicaPlan) -> Manifest:
    """What is run, and where. An image of a person's own knows both where the job does not say, and may be another by
    now under the same tag."""
    command = [_literal(argument) for argument in replica.command]
    if not plan.agents:
        return {"imagePullPolicy": "Always", **({"command": command} if command else {})}
    agent = [str(PLATFORM_PYTHON), "-m", "runtime.agent.pod_entrypoint", "--"]
    return {"imagePullPolicy": "IfNotPresent", "command": [*agent, *command], "workingDir": str(WORKSPACE)}


def _volumes(replica: ReplicaPlan, cluster: Cluster) -> Iterator[tuple[str, tuple[PurePosixPath, Any, bool]]]:
    """Name, and where it is mounted, what it is, and whether it can only be read."""
    yield "room", (WORKSPACE, {"emptyDir": {}}, False)
    yield "tmp", (PurePosixPath("/tmp"), {"emptyDir": {}}, False)  # noqa: S108  the pod's own
    memory = {"medium": "Memory", "sizeLimit": str(min(cluster.shared_memory, replica.memory))}
    yield "shm", (PurePosixPath("/dev/shm"), {"emptyDir": memory}, False)  # noqa: S108  the pod's own
    for number, mount in enumerate(cluster.data):
        yield f"data-{number}", (mount.path, dict(mount.volume), not mount.writable)
    if cluster.checkpoints is not None and not replica.runs_user_code:
        yield "checkpoints", (CHECKPOINTS, dict(cluster.checkpoints), False)


def _environment(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> Iterator[Manifest]:
    """Those read from labels first: others refer to them."""
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
    if not coordination_url(replica):
        decided[contract.COORDINATION] = f"sqlite:///{WORKSPACE / 'coordination.sqlite3'}"
    if plan.image and replica.runs_user_code:
        decided[contract.CODE_DIR] = str(CODE)
    if cluster.checkpoints is not None and not replica.runs_user_code:
        decided[contract.CHECKPOINT_DIR] = str(CHECKPOINTS / plan.ref.job_id)
    return {**cluster.extra_environment, **stated, **decided}


def _plain_of_bare(plan: LaunchPlan, replica: ReplicaPlan, cluster: Cluster) -> dict[str, str]:
    """Nothing by which one could speak to the platform. The person's own variables, in the Secret, come before."""
    variables = {
        contract.JOB_ID: plan.ref.job_id,
        contract.ATTEMPT: str(plan.ref.number),
        contract.ROLE: replica.role,
        # An image's own user may have a home in which this one cannot write.
        "HOME": str(WORKSPACE),
        **{name: replica.environment[name] for name in BARE_VARIABLES if replica.environment.get(name)},
    }
    if mounted := _mounted(replica, cluster):
        variables[contract.DATA_PATH] = ":".join(map(str, mounted))
    own = {name for name, _ in _secrets(plan, replica)}
    return {name: value for name, value in variables.items() if name not in own}


def is_unmounted(replica: ReplicaPlan, cluster: Cluster) -> bool:
    """Whether it is to work on a dataset that its pod does not see."""
    return bool(replica.environment.get(contract.DATASET)) and not _mounted(replica, cluster)


def _mounted(replica: ReplicaPlan, cluster: Cluster) -> list[PurePosixPath]:
    """Where the pod sees data."""
    paths = _paths(replica.environment.get(contract.DATA_PATH, ""))
    return [path for path in paths if _is_mounted(path, cluster.data)]


def coordination_url(replica: ReplicaPlan) -> str:
    """The store in which the attempt's processes meet. Those of a framework that does without have one of their own."""
    return replica.environment.get(contract.COORDINATION, "")


def _paths(value: str) -> Iterator[PurePosixPath]:
    return (PurePosixPath(part) for part in value.split(":") if part)


def _is_mounted(path: PurePosixPath, mounts: Iterable[Mount]) -> bool:
    return any(path.is_relative_to(mount.path) for mount in mounts)


def _literal(text: str) -> str:
    """Kubernetes puts variables in the place of ``$(NAME)``, unless it is written so."""
    return text.replace("$(", "$$(")
