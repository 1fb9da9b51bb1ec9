"""Structure of rendered objects: names, labels, and references between objects, as the API server and the kubelet check
them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from portal.deployment.objects import Object, Objects, containers_of, is_workload, name_of, pod_of

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_IMAGE = re.compile(r"([a-z0-9.-]+(:\d+)?/)?[a-z0-9._-]+(/[a-z0-9._-]+)*:[A-Za-z0-9_.-]+")
_CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
# Not created by the manifests, but part of every cluster.
_NAMESPACES = {"default"}
_ACCOUNTS = {("default", "default")}


def problems(objects: Objects, secrets: set[str], claims: set[str]) -> Iterator[str]:
    """Yield each fault. ``secrets`` and ``claims``: names of those that the operator creates in regatta-system."""
    yield from _unique(objects)
    for body in objects:
        where = f"{body['kind']} {name_of(body)}"
        found = (*_metadata(body, objects), *_references(body, objects), *_pod(body, objects, secrets, claims))
        yield from (f"{where}: {problem}" for problem in found)


def _unique(objects: Objects) -> Iterator[str]:
    keys = [(body["kind"], body["metadata"].get("namespace"), name_of(body)) for body in objects]
    yield from (f"{key} occurs twice" for key in keys if keys.count(key) > 1)


def _names(objects: Objects, kind: str, namespace: str | None = None) -> set[str]:
    return {
        name_of(body)
        for body in objects
        if body["kind"] == kind and (namespace is None or body["metadata"].get("namespace") == namespace)
    }


def _metadata(body: Object, objects: Objects) -> Iterator[str]:
    metadata = body["metadata"]
    if not _NAME.fullmatch(metadata["name"]):
        yield "its name is not valid"
    if (body["kind"] in _CLUSTER_WIDE) == ("namespace" in metadata):
        yield "a namespaced object names its namespace, and another none"
    if "namespace" in metadata and metadata["namespace"] not in _names(objects, "Namespace") | _NAMESPACES:
        yield f"there is no namespace {metadata['namespace']}"
    template = body["spec"]["template"]["metadata"] if is_workload(body) else {}
    for labels in (metadata.get("labels", {}), template.get("labels", {})):
        for key, value in labels.items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                yield f"the label {key}={value} is not valid"
    for notes in (metadata.get("annotations", {}), template.get("annotations", {})):
        yield from (f"the annotation {key} is no text" for key, value in notes.items() if type(value) is not str)


# --- References between objects --------------------------------------------------------------------------------------
def _references(body: Object, objects: Objects) -> Iterator[str]:
    checks = {
        "Service": _service,
        "Ingress": _ingress,
        "PodDisruptionBudget": _selection,
        "NetworkPolicy": _selection,
        "HorizontalPodAutoscaler": _scaled,
        "RoleBinding": _binding,
        "ClusterRoleBinding": _binding,
    }
    if check := checks.get(body["kind"]):
        yield from check(body, objects)


def _selected(labels: dict[str, str], objects: Objects) -> list[Object]:
    found = [body for body in objects if is_workload(body)]
    return [body for body in found if labels.items() <= body["spec"]["template"]["metadata"]["labels"].items()]


def _ports(workload: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for each in containers_of(workload) for port in each.get("ports", ())}


def _service(body: Object, objects: Objects) -> Iterator[str]:
    chosen = _selected(body["spec"]["selector"], objects)
    if len(chosen) != 1:
        yield f"it selects {len(chosen)} workloads"
    for port in body["spec"]["ports"]:
        if any(port["targetPort"] not in _ports(workload) for workload in chosen):
            yield f"no container has the port {port['targetPort']}"


def _ingress(body: Object, objects: Objects) -> Iterator[str]:
    services = {
        name_of(each): {port["name"] for port in each["spec"]["ports"]} for each in objects if each["kind"] == "Service"
    }
    for rule in body["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            backend = path["backend"]["service"]
            if backend["port"]["name"] not in services.get(backend["name"], set()):
                yield f"there is no service {backend['name']} with the port {backend['port']['name']}"


def _selection(body: Object, objects: Objects) -> Iterator[str]:
    selector = body["spec"].get("selector") or body["spec"].get("podSelector") or {}
    labels = selector.get("matchLabels", {})
    if labels and not _selected(labels, objects):
        yield f"it selects no workload: {labels}"


def _scaled(body: Object, objects: Objects) -> Iterator[str]:
    target = body["spec"]["scaleTargetRef"]
    if target["name"] not in _names(objects, target["kind"], body["metadata"]["namespace"]):
        yield f"there is no {target['kind']} {target['name']}"


def _binding(body: Object, objects: Objects) -> Iterator[str]:
    role = body["roleRef"]
    namespace = body["metadata"].get("namespace") if role["kind"] == "Role" else None
    if role["name"] not in _names(objects, role["kind"], namespace):
        yield f"there is no {role['kind']} {role['name']}"
    for subject in body["subjects"]:
        if subject["name"] not in _names(objects, "ServiceAccount", subject["namespace"]):
            yield f"there is no service account {subject['namespace']}/{subject['name']}"


# --- Pods ------------------------------------------------------------------------------------------------------------
def _pod(body: Object, objects: Objects, secrets: set[str], claims: set[str]) -> Iterator[str]:
    if not is_workload(body):
        return
    pod, namespace = pod_of(body), body["metadata"]["namespace"]
    if pod.get("serviceAccountName", "default") not in _names(objects, "ServiceAccount", namespace):
        yield f"there is no service account {pod.get('serviceAccountName', 'default')}"
    named = [each["name"] for each in containers_of(body)]
    if len(named) != len(set(named)):
        yield "two containers have one name"
    selector = body["spec"]["selector"]["matchLabels"]
    if not selector.items() <= body["spec"]["template"]["metadata"]["labels"].items():
        yield "it does not select its own pods"
    known = {"Secret": secrets, "ConfigMap": _names(objects, "ConfigMap", namespace)}
    known["PersistentVolumeClaim"] = claims | _names(objects, "PersistentVolumeClaim", namespace)
    for kind, name in _referenced(body):
        if name not in known[kind]:
            yield f"there is no {kind} {name}"
    for container in containers_of(body):
        yield from (f"container {container['name']}: {problem}" for problem in _container(container, body))


def _referenced(workload: Object) -> Iterator[tuple[str, str]]:
    pod = pod_of(workload)
    for volume in pod.get("volumes", ()):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    yield from (("Secret", item["name"]) for item in pod.get("imagePullSecrets", ()))
    for container in containers_of(workload):
        for source in container.get("envFrom", ()):
            yield from (("Secret", source[key]["name"]) for key in ("secretRef",) if key in source)
            yield from (("ConfigMap", source[key]["name"]) for key in ("configMapRef",) if key in source)
        for variable in container.get("env", ()):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", reference["name"]


def _container(container: dict[str, Any], workload: Object) -> Iterator[str]:
    if not _IMAGE.fullmatch(container["image"]):
        yield f"the image {container['image']} is not valid"
    volumes = {volume["name"] for volume in pod_of(workload).get("volumes", ())}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    if len(paths) != len(set(paths)):
        yield "two volumes have one path"
    yield from (
        f"there is no volume {mount['name']}"
        for mount in container.get("volumeMounts", ())
        if mount["name"] not in volumes
    )
    variables = [variable["name"] for variable in container.get("env", ())]
    if len(variables) != len(set(variables)):
        yield "a variable is set twice"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        for action in ("httpGet", "tcpSocket"):
            port = container.get(probe, {}).get(action, {}).get("port")
            if port is not None and port not in _ports(workload):
                yield f"{probe} has the port {port}, which no container has"
