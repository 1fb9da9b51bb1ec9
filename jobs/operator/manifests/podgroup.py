"""Volcano's PodGroup: the number of pods that start together, and their resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from jobs.operator.manifests.owner import owned
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.spec import PaddleJob

API_VERSION = "scheduling.volcano.sh/v1beta1"
READY = frozenset({"Inqueue", "Running"})  # phases in which pods may be created

_UNITS: Mapping[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000 ** (power + 1)) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Fraction(1024 ** (power + 1)) for power, unit in enumerate("KMGTPE")},
}


def is_volcano_s(job: PaddleJob) -> bool:
    """Whether Volcano schedules the job: no role names another scheduler."""
    schedulers = {
        (role.template.get("spec") or {}).get("schedulerName") or names.VOLCANO for role in job.roles.values()
    }
    return schedulers == {names.VOLCANO}


def pod_group(job: PaddleJob) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "minMember": job.gang,
        "minResources": dict(job.scheduling.min_resources) or needed(job),
    }
    if job.scheduling.queue:
        spec["queue"] = job.scheduling.queue
    if job.scheduling.priority_class:
        spec["priorityClassName"] = job.scheduling.priority_class
    return {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": owned(job, job.name), "spec": spec}


def needed(job: PaddleJob) -> dict[str, str]:
    """Return the sum of all containers' requests, or limits of those without requests. Init containers do not count."""
    total: dict[str, Fraction] = {}
    for role in job.roles.values():
        for resource, amount in _amounts(role.containers):
            total[resource] = total.get(resource, Fraction(0)) + role.replicas * amount
    return {resource: _text(amount) for resource, amount in sorted(total.items())}


def _amounts(containers: Iterable[Object]) -> Iterable[tuple[str, Fraction]]:
    for container in containers:
        resources = container.get("resources") or {}
        for resource, quantity in (resources.get("requests") or resources.get("limits") or {}).items():
            yield resource, amount_of(quantity)


def amount_of(quantity: object) -> Fraction:
    """Parse a Kubernetes quantity such as ``"500m"``, ``"10Mi"``, ``2`` or ``"1e3"``."""
    text = str(quantity).strip()
    unit = next((unit for unit in sorted(_UNITS, key=len, reverse=True) if unit and text.endswith(unit)), "")
    return Fraction(text.removesuffix(unit)) * _UNITS[unit]


def _text(amount: Fraction) -> str:
    if amount.denominator == 1:
        return str(amount.numerator)
    return f"{-(-amount.numerator * 1000 // amount.denominator)}m"  # rounded up to thousandths
