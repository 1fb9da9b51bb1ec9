"""Names of the PaddleJob contract: the resource, its roles, labels, annotations and reasons. Pure.

Names of paddle-operator 0.3.5 are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from jobs.frameworks import paddle

# An object of the Kubernetes API, as its JSON.
Object: TypeAlias = Mapping[str, Any]

GROUP = "batch.paddlepaddle.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PaddleJob"
PLURAL = "paddlejobs"

# In the order in which their pods are made and counted. The first is the native framework's, the others Paddle's.
MASTER, PS, WORKER, HETER = "master", "ps", "worker", "heter"
ROLES = (MASTER, PS, WORKER, HETER)
TRAINING_ROLES: Mapping[str, str] = {MASTER: "MASTER", PS: paddle.SERVER, WORKER: paddle.TRAINER, HETER: "HETER"}

# Labels and annotations of paddle-operator.
RESOURCE_NAME_LABEL = "paddle-res-name"
RESOURCE_TYPE_LABEL = "paddle-res-type"
RESOURCE_ANNOTATION = "paddle-resource"
HOST_PORT_ANNOTATION = "host-port"
FINALIZER = "finalizers.paddlepaddle.org"  # set by paddle-operator; removed when the job is deleted

# Labels of this controller. A pod template may read the last five by fieldRef.
JOB_LABEL = f"{GROUP}/job-name"
ROLE_LABEL = f"{GROUP}/role"
INDEX_LABEL = f"{GROUP}/index"
ATTEMPT_LABEL = f"{GROUP}/attempt"
# Start number of the pod at its place, from 1; only where the job has ``spec.starts``.
START_NUMBER_LABEL = f"{GROUP}/start-number"
# On the ConfigMap: the pods whose addresses it contains, as JSON.
MEMBERS_ANNOTATION = f"{GROUP}/members"
# On a pod: UID of the ConfigMap for which its node was notified.
NUDGE_ANNOTATION = f"{GROUP}/notified"
# On the PaddleJob: any text that changes with the training's progress, written by the component that monitors it.
PROGRESS_ANNOTATION = f"{GROUP}/progress"
# On the PaddleJob: how many seconds pods have to end when the job is suspended, instead of those of their template.
GRACE_ANNOTATION = f"{GROUP}/grace"
# Value of runPolicy.managedBy that means this controller.
CONTROLLER = f"{GROUP}/paddlejob-controller"

COORDINATION_CONTAINER = "coord-paddle"

PORT = 36000  # first port of a pod with an address of its own
PORTS = paddle.PORTS  # consecutive ports for each pod

VOLCANO = "volcano"
LABEL_LIMIT = 63  # characters of a label's value and of a host's name

HOST_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def uid_of(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def is_leaving(item: Object) -> bool:
    """Whether the object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))
