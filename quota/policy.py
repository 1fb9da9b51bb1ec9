"""Admission: whether a request fits beside what is held already. Pure; amounts as in ``quota.models``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# What an attempt holds while it runs, in the order in which a refusal names them.
HELD = ("cpu", "memory", "gpu", "jobs", "storage")
# What is counted over time, and the held resource that it counts.
HOURS_OF: Mapping[str, str] = {"cpu_hours": "cpu", "gpu_hours": "gpu"}
RESOURCES = (*HELD, *HOURS_OF)

Amounts = Mapping[str, float]
Limits = Mapping[str, float | None]

_GIB = 1024**3


@dataclass(frozen=True)
class Shortage:
    """One resource that does not fit. ``held`` is what running attempts have of it."""

    resource: str
    needed: float
    limit: float
    held: float

    @property
    def free(self) -> float:
        return max(0.0, self.limit - self.held)

    @property
    def never(self) -> bool:
        """Would not fit if nothing else ran."""
        return self.needed > self.limit


@dataclass(frozen=True)
class Verdict:
    """``never``: would not fit if nothing else ran. ``why`` is a sentence, empty when admitted. ``numbers`` maps each
    resource that is short to {"needed", "limit", "held", "free"}."""

    admitted: bool
    never: bool = False
    why: str = ""
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def total(amounts: Iterable[Amounts]) -> dict[str, float]:
    """The sum per held resource; exact, so that the order does not matter."""
    rows = list(amounts)
    return {resource: math.fsum(row.get(resource, 0) for row in rows) for resource in HELD}


def decide(request: Amounts, limits: Limits, reserved: Amounts, *, namespace: str = "") -> Verdict:
    """Whether the request fits. A resource without a limit always does."""
    short = [shortage for resource in HELD if (shortage := _shortage(resource, request, limits, reserved))]
    if not short:
        return Verdict(admitted=True)
    never = [shortage for shortage in short if shortage.never]
    told = never or short
    return Verdict(
        admitted=False,
        never=bool(never),
        why=" ".join(_sentence(shortage, namespace) for shortage in told),
        numbers={item.resource: _numbers(item) for item in told},
    )


def _shortage(resource: str, request: Amounts, limits: Limits, reserved: Amounts) -> Shortage | None:
    needed, limit, held = request.get(resource, 0), limits.get(resource), reserved.get(resource, 0)
    # Nothing asked of a resource is no reason to wait, even where a lowered limit is over-held.
    if limit is None or needed <= 0 or held + needed <= limit:
        return None
    return Shortage(resource, needed, limit, held)


def _numbers(item: Shortage) -> dict[str, float]:
    return {"needed": item.needed, "limit": item.limit, "held": item.held, "free": item.free}


def _sentence(item: Shortage, namespace: str) -> str:
    needed, limit = amount_in_words(item.resource, item.needed), amount_in_words(item.resource, item.limit)
    where = f" in `{namespace}`" if namespace else ""
    if item.never:
        return (
            f"Needs {needed}; the limit{where} is {limit}, so it can never start. Ask for less, or an admin for more."
        )
    free, held = _bare(item.resource, item.free), _bare(item.resource, item.held)
    of = _bare(item.resource, item.limit)
    return f"Needs {needed}; {free} of {of} are free{where}: {held} are held by running jobs."


def amount_in_words(resource: str, amount: float) -> str:
    """``3 cpu``, ``1 job``, ``1.5 GiB of memory``."""
    if resource in ("memory", "storage"):
        return f"{_bare(resource, amount)} of {resource}"
    if resource == "jobs":
        return f"{amount:g} running job" + ("" if amount == 1 else "s")
    return f"{amount:g} {resource}"


def _bare(resource: str, amount: float) -> str:
    return f"{amount / _GIB:.3g} GiB" if resource in ("memory", "storage") else f"{amount:g}"
