"""Kubernetes objects as plain data: load, select, change copies of them, order, and print."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

Object = dict[str, Any]
Objects = tuple[Object, ...]
Predicate = Callable[[Object], bool]

SYSTEM, BUILDS = "regatta-system", "regatta-builds"
WORKLOADS = frozenset({"Deployment", "StatefulSet"})
# libyaml reads ten times as fast; not every build of PyYAML has it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Kinds in the order in which they are applied; others come before workloads, in the order of the files.
_FIRST: tuple[str, ...] = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
)
_FIRST += ("RoleBinding", "ResourceQuota", "NetworkPolicy", "ConfigMap", "PersistentVolumeClaim", "Service")
_LAST = ("StatefulSet", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Ingress")


class MissingObject(LookupError):
    """The manifests lack an object that a value changes: they and the code do not fit."""


def load(texts: Iterable[str]) -> Objects:
    """Return the objects of YAML files. Aliases become copies, so that a change of one has no effect on another."""
    found = [body for text in texts for body in yaml.load_all(text, _LOADER) if body]
    return tuple(json.loads(json.dumps(body)) for body in found)


def name_of(body: Object) -> str:
    return str(body["metadata"]["name"])


def named(kind: str, *names: str) -> Predicate:
    """Return a predicate for objects of the kind, with one of the names if any is given."""
    return lambda body: body["kind"] == kind and (not names or name_of(body) in names)


def is_workload(body: Object) -> bool:
    return body["kind"] in WORKLOADS


def is_of_portal(body: Object) -> bool:
    """Whether the object is a workload with the settings of the portal."""
    return is_workload(body) and _labels(body).get("app.kubernetes.io/part-of") == "portal"


def _labels(workload: Object) -> dict[str, str]:
    return dict(workload["spec"]["template"]["metadata"]["labels"])


def changed(objects: Objects, chosen: Predicate, change: Callable[[Object], None]) -> Objects:
    """Return the objects, with a changed copy of each chosen one. Raises MissingObject if none is chosen."""
    found = tuple(_changed(body, change) if chosen(body) else body for body in objects)
    if not any(map(chosen, objects)):
        raise MissingObject(f"The manifests have no object for {getattr(change, '__qualname__', change)}.")
    return found


def _changed(body: Object, change: Callable[[Object], None]) -> Object:
    own = copy.deepcopy(body)
    change(own)
    return own


def without(objects: Objects, *dropped: Predicate) -> Objects:
    return tuple(body for body in objects if not any(predicate(body) for predicate in dropped))


def pod_of(workload: Object) -> dict[str, Any]:
    """Return the specification of a workload's pods."""
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def containers_of(workload: Object) -> Iterator[dict[str, Any]]:
    """Yield the containers of a workload's pods, init containers first."""
    pod = pod_of(workload)
    yield from (*pod.get("initContainers", ()), *pod["containers"])


# --- Output ----------------------------------------------------------------------------------------------------------
def in_order(objects: Objects) -> Objects:
    """Return the objects in the order in which they are applied. The order of one kind stays."""
    return tuple(sorted(objects, key=_rank))


def _rank(body: Object) -> int:
    kind = body["kind"]
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + 1 + _LAST.index(kind) if kind in _LAST else len(_FIRST)


def dump(objects: Objects) -> str:
    """Return one YAML stream."""
    return "".join(f"---\n{yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=120)}" for body in objects)


class _Dumper(yaml.SafeDumper):
    """A dumper without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
