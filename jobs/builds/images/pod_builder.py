"""Builder of images in a pod of the cluster, without privileges.

The pod runs in the parent image, under an unprivileged user. An init container copies the tools (``export_toolkit.py``)
from the image in the settings, which is the portal's own. The step (``build_step.py``) writes the added files to a
volume, and ``push_layer.py`` packs and pushes them as a layer. The pod's name is derived from the image: a second
request, also after a restart, follows the same pod.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from jobs.builds.images import build_request, plan
from jobs.builds.images.build_request import Order
from jobs.builds.images.buildah import failure_message, too_long
from jobs.builds.images.errors import BuildFailed
from jobs.builds.images.plan import Image
from jobs.messages import cluster as messages
from jobs.operator.client.api import CONFLICT, MISSING, ApiServer, Refusal, connect
from jobs.operator.client.resources import PODS, Resource
from jobs.operator.model.names import Object

TOOLS = "/opt/regatta-build"  # in the image with the tools
_PLACE = "/regatta-build"
_CONFIG_MAPS = Resource("ConfigMap", "/api/v1", "configmaps")
_LOOK_SECONDS = 0.5
_AWAY_SECONDS = 2.0
_TOO_MANY, _BROKEN = 429, 500
_SLACK_SECONDS = 60
# Waiting reasons of the kubelet that do not resolve by themselves.
_PERMANENT = frozenset({"ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"})


class Pods:
    """Builds images in pods; their output goes to ``log``. Raises BuildFailed."""

    def __init__(self, order: Order, deadline: float, log: IO[str], api: ApiServer | None = None) -> None:
        self._order, self._deadline, self._log = order, deadline, log
        self._api = api or connect(order.kubeconfig or None, 2)

    def make(self, image: Image, folder: Path) -> None:
        name = pod_name(image)
        try:
            self._begin(image, name)
            self._follow(name)
        except Refusal as refusal:
            raise BuildFailed(messages.IMAGE_BUILD_FORBIDDEN(error=refusal.message)) from refusal
        finally:
            self._quietly_delete(PODS.path(self._order.namespace, name))
            self._quietly_delete(_CONFIG_MAPS.path(self._order.namespace, name))

    def _begin(self, image: Image, name: str) -> None:
        seconds = max(1.0, self._deadline - time.monotonic())
        for resource, body in (
            (_CONFIG_MAPS, step_map(self._order, image, name, seconds)),
            (PODS, pod(self._order, image, name, seconds)),
        ):
            try:
                self._call("POST", resource.path(self._order.namespace), body)
            except Refusal as refusal:
                if refusal.status != CONFLICT:
                    raise

    def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        """Call the API server. Transient errors are retried until the deadline: the pod continues meanwhile."""
        while True:
            try:
                return self._api.call(method, path, body)
            except Refusal as refusal:
                pause = max(_AWAY_SECONDS, refusal.retry_after or 0.0)
                passing = refusal.status in (0, _TOO_MANY) or refusal.status >= _BROKEN
                if not passing or time.monotonic() + pause > self._deadline:
                    raise
                self._write_log([messages.CLUSTER_NOT_RESPONDING(error=refusal.message)])
                time.sleep(pause)

    def _follow(self, name: str) -> None:
        """Follow the pod until it has ended, and copy its log."""
        written = 0
        while True:
            observed = self._call("GET", PODS.path(self._order.namespace, name))
            lines = self._lines(name)
            self._write_log(lines[written:])
            written = max(written, len(lines))
            phase = observed.get("status", {}).get("phase")
            if phase == "Succeeded":
                return
            if phase == "Failed":
                raise BuildFailed(_failure(lines, observed))
            if why := permanent_problem(observed):
                raise BuildFailed(messages.IMAGE_NOT_BUILT(error=why))
            if time.monotonic() > self._deadline:
                raise BuildFailed(too_long(self._order))
            time.sleep(_LOOK_SECONDS)

    def _lines(self, name: str) -> list[str]:
        """Return the pod's output so far, in whole lines."""
        path = PODS.path(self._order.namespace, name, "log")
        try:
            text = self._api.text(path, {"container": "build"})
        except Refusal:
            return []  # the container has not started
        return text.split("\n")[:-1]

    def _write_log(self, lines: list[str]) -> None:
        for line in lines:
            self._log.write(line + "\n")
        self._log.flush()

    def _quietly_delete(self, path: str) -> None:
        try:
            self._api.call("DELETE", path, {"gracePeriodSeconds": 0})
        except Refusal as refusal:
            if refusal.status != MISSING:
                self._log.write(f"It could not be cleaned up: {refusal.message}\n")


# --- Objects: pure ---------------------------------------------------------------------------------------------------
def pod_name(image: Image) -> str:
    return f"build-{plan.parts(image.reference)[2]}"


def step_map(order: Order, image: Image, name: str, seconds: float) -> dict[str, Any]:
    """Return the ConfigMap with the input of the programs in the pod."""
    step = build_request.step(order, image, order.pip, seconds, str(plan.PLATFORM))
    push = {
        "parent": image.parent,
        "reference": image.reference,
        "folder": image.folder,
        "registry": order.registry,
        "insecure": order.insecure,
    }
    metadata = {"name": name, "namespace": order.namespace, "labels": _LABELS}
    data = {"step.json": json.dumps(step), "push.json": json.dumps(push)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


_LABELS = {"app.kubernetes.io/managed-by": "regatta", "regatta/build": "image"}


def pod(order: Order, image: Image, name: str, seconds: float) -> dict[str, Any]:
    mounts = dict(_mounts(order, image))
    size = str(order.bytes + build_request.WORKSPACE_BYTES)
    containers = {
        "initContainers": [_container("tools", order.tools, ["cp", "-r", f"{TOOLS}/.", f"{_PLACE}/tool"], mounts)],
        "containers": [_container("build", image.parent, ["python3", "-I", f"{_PLACE}/tool/build.py", _PLACE], mounts)],
    }
    volumes: list[dict[str, Any]] = [
        {"name": "tool", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "target", "emptyDir": {"sizeLimit": size}},
        {"name": "tmp", "emptyDir": {"sizeLimit": size}},
        {"name": "step", "configMap": {"name": name}},
    ]
    if order.secret:
        items = [{"key": ".dockerconfigjson", "path": "config.json"}]
        volumes.append({"name": "credentials", "secret": {"secretName": order.secret, "items": items}})
    spec = {
        **containers,
        "volumes": volumes,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(seconds) + _SLACK_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "imagePullSecrets": [{"name": order.secret}] if order.secret else [],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": plan.USER,
            "runAsGroup": plan.GROUP,
            "fsGroup": plan.GROUP,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    metadata = {"name": name, "namespace": order.namespace, "labels": _LABELS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _mounts(order: Order, image: Image) -> Iterator[tuple[str, str]]:
    yield "tool", f"{_PLACE}/tool"
    yield "target", image.folder
    yield "tmp", "/tmp"  # noqa: S108  in the pod
    yield "step", f"{_PLACE}/step"
    if order.secret:
        yield "credentials", f"{_PLACE}/credentials"


def _container(name: str, image: str, command: list[str], mounts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": command,
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "volumeMounts": [{"name": volume, "mountPath": place} for volume, place in mounts.items()],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],  # noqa: S108
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def permanent_problem(observed: Object) -> str:
    """Return why the pod will never run, as the cluster reports it; empty while it may."""
    status = observed.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _PERMANENT:
            return f"{waiting['reason']}: {waiting.get('message', 'no reason was given')}"
    return ""


def _failure(lines: Sequence[str], observed: Object) -> str:
    """Return why the pod of a build failed."""
    status = observed.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("state", {}).get("terminated") or {}
        if ended.get("reason") == "OOMKilled":
            return messages.BUILD_OUT_OF_MEMORY()
    if any(line.strip() for line in lines):
        return failure_message(lines, messages.IMAGE_NOT_BUILT)
    return messages.IMAGE_NOT_BUILT(error=status.get("message") or messages.BUILD_POD_FAILED())
