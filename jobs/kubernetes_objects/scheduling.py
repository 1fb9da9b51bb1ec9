"""The scheduling facts of nodes and pods: a thousandth of the objects that the API server returns. Pure.

CPU is in thousandths of a core, memory in bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

# An object as the API server returns it.
_Object: TypeAlias = Mapping[str, Any]

# Effects of taints that keep new pods away; whether they evict running pods makes no difference here.
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_CLOSED = "closed"  # an internal taint, which no pod tolerates
_TEMPLATE_HASH = "pod-template-hash"
_OVER = ("Succeeded", "Failed")
_SUFFIXES: Mapping[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)(n|u|m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII
)

# Terms, one of which has to match; a term is a list of requirements (key, operator, values) that all have to match. No
# term: any node.
Selector = tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...]


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """Toleration of the taints with the given key, value and effect. An empty key or effect matches all.

    ``any_value``: matches every value.
    """

    key: str
    any_value: bool
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        return (
            taint.key != _CLOSED
            and (not self.key or self.key == taint.key)
            and (not self.effect or self.effect == taint.effect)
            and (self.any_value or self.value == taint.value)
        )


class Needs(NamedTuple):
    """Resource requests. ``extended``: requests of other resources, by name."""

    cpu: int = 0
    memory: int = 0
    extended: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeInfo:
    name: str
    allocatable: Needs
    taints: frozenset[Taint]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PodInfo:
    """Scheduling facts of a pod.

    ``node``: empty while the pod has none. ``kind`` and ``owner``: its controller, a Deployment in place of its
    ReplicaSet; empty where there is none. ``over``: its containers have ended, and it holds no resources.
    """

    namespace: str
    name: str
    node: str
    needs: Needs
    priority: int = 0
    leaving: bool = False
    over: bool = False
    kind: str = ""
    owner: str = ""
    tolerations: tuple[Toleration, ...] = ()
    selector: Selector = ()


def condensed(kind: str, item: _Object) -> dict[str, Any]:
    """Return the object as a cache stores it: its identity, and under ``seen`` a ``NodeInfo`` or a ``PodInfo``."""
    metadata = {key: item["metadata"].get(key, "") for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"kind": kind, "metadata": metadata, "seen": _READERS[kind](item)}


def quantity(text: object) -> Decimal:
    """Return the number of a Kubernetes quantity; 0 if the text is not a quantity."""
    found = _QUANTITY.fullmatch(str(text).strip())
    return Decimal(found[1]) * _SUFFIXES[found[2] or ""] if found else Decimal(0)


def matches(selector: Selector, node: NodeInfo) -> bool:
    """Whether a pod with this selector may run on the node."""
    labels = {**node.labels, "metadata.name": node.name}
    return not selector or any(all(_holds(each, labels) for each in term) for term in selector)


class Placement(NamedTuple):
    """Constraints of a pod on its nodes, from its own specification."""

    tolerations: tuple[Toleration, ...] = ()
    selector: Selector = ()


def placement(spec: _Object) -> Placement:
    """Return the constraints of a pod's specification, which may be partial."""
    tolerations = {_toleration(each) for each in spec.get("tolerations") or ()}
    return Placement(tuple(sorted(tolerations)), _selector(spec))


# --- Nodes ------------------------------------------------------------------------------------------------------------
def _node(item: _Object) -> NodeInfo:
    spec, status, name = item.get("spec") or {}, item.get("status") or {}, str(item["metadata"]["name"])
    taints = {
        Taint(str(each.get("key", "")), str(each.get("value") or ""), str(each.get("effect", "")))
        for each in spec.get("taints") or ()
        if each.get("effect") in _KEEPS_AWAY
    }
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())
    if spec.get("unschedulable") or not ready:
        taints.add(Taint(_CLOSED, "", "NoSchedule"))
    labels = {str(key): str(value) for key, value in (item["metadata"].get("labels") or {}).items()}
    return NodeInfo(name, _needs(status.get("allocatable") or {}, math.floor), frozenset(taints), labels)


# --- Pods -------------------------------------------------------------------------------------------------------------
def _pod(item: _Object) -> PodInfo:
    spec, metadata = item.get("spec") or {}, item["metadata"]
    kind, owner = _owner(metadata)
    tolerations, selector = placement(spec)
    return PodInfo(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        node=str(spec.get("nodeName") or ""),
        needs=_requested(spec),
        priority=int(spec.get("priority") or 0),
        leaving=bool(metadata.get("deletionTimestamp")),
        over=(item.get("status") or {}).get("phase") in _OVER,
        kind=kind,
        owner=owner,
        tolerations=tolerations,
        selector=selector,
    )


def _owner(metadata: _Object) -> tuple[str, str]:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
            mark = f"-{(metadata.get('labels') or {}).get(_TEMPLATE_HASH, '')}"
            if kind == "ReplicaSet" and len(mark) > 1 and name.endswith(mark):
                return "Deployment", name.removesuffix(mark)
            return kind, name
    return "", ""


def _toleration(entry: _Object) -> Toleration:
    exists = entry.get("operator") == "Exists"
    return Toleration(
        str(entry.get("key") or ""), exists, str(entry.get("value") or ""), str(entry.get("effect") or "")
    )


def _requested(spec: _Object) -> Needs:
    """Return the requests that the scheduler counts: the sum of all containers, or the init containers' maximum."""
    main = [_requests(each) for each in spec.get("containers") or ()]
    first: list[Mapping[str, Decimal]] = []
    beside: list[Mapping[str, Decimal]] = []
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            beside.append(_requests(each))
        else:
            first.append(_sum([*beside, _requests(each)]))
    most: dict[str, Decimal] = dict(_sum([*main, *beside]))
    for each in first:
        most = {name: max(most.get(name, Decimal(0)), each.get(name, Decimal(0))) for name in {*most, *each}}
    whole = {name: quantity(amount) for name, amount in ((spec.get("resources") or {}).get("requests") or {}).items()}
    overhead = {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()}
    return _needs(_sum([{**most, **whole}, overhead]), math.ceil)


def _requests(container: _Object) -> dict[str, Decimal]:
    entry = (container.get("resources") or {}).get("requests") or {}
    return {name: quantity(amount) for name, amount in entry.items()}


def _sum(amounts: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = found.get(name, Decimal(0)) + amount
    return found


def _needs(amounts: Mapping[str, object], rounded: Callable[[Decimal], int]) -> Needs:
    known = {name: amount if isinstance(amount, Decimal) else quantity(amount) for name, amount in amounts.items()}
    extended = tuple(sorted((name, int(amount)) for name, amount in known.items() if "/" in name and amount))
    return Needs(rounded(known.get("cpu", Decimal(0)) * 1000), rounded(known.get("memory", Decimal(0))), extended)


# --- Constraints on nodes ---------------------------------------------------------------------------------------------
def _selector(spec: _Object) -> Selector:
    """Return the ``nodeSelector`` and the required node affinity as terms."""
    plain = tuple(sorted((str(key), "In", (str(value),)) for key, value in (spec.get("nodeSelector") or {}).items()))
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = [tuple(sorted((*plain, *_requirements(term)))) for term in required.get("nodeSelectorTerms") or ()]
    return tuple(sorted(terms)) if terms else ((plain,) if plain else ())


def _requirements(term: _Object) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for part in ("matchExpressions", "matchFields"):
        for each in term.get(part) or ():
            yield str(each.get("key")), str(each.get("operator")), tuple(map(str, each.get("values") or ()))


def _holds(requirement: tuple[str, str, tuple[str, ...]], labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    compare = _OPERATORS.get(operator)
    return compare is not None and compare(labels.get(key), values)


def _compared(sign: int) -> Callable[[str | None, tuple[str, ...]], bool]:
    def compare(label: str | None, values: tuple[str, ...]) -> bool:
        try:
            return label is not None and (int(label) - int(values[0])) * sign > 0
        except (ValueError, IndexError):
            return False

    return compare


_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda label, values: label in values,
    "NotIn": lambda label, values: label not in values,
    "Exists": lambda label, values: label is not None,
    "DoesNotExist": lambda label, values: label is None,
    "Gt": _compared(1),
    "Lt": _compared(-1),
}
_READERS: Mapping[str, Callable[[_Object], NodeInfo | PodInfo]] = {"Node": _node, "Pod": _pod}
