"""Amounts of resources: their names, their sums, and how a message tells them. Pure; units as in ``quota.models``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

# What an attempt holds while it runs, in the order in which a refusal names them.
HELD = ("cpu", "memory", "gpu", "jobs", "storage")
# What is counted over time, and the held resource that it counts.
HOURS_OF: Mapping[str, str] = {"cpu_hours": "cpu", "gpu_hours": "gpu"}
RESOURCES = (*HELD, *HOURS_OF)
# Resources of which there is no half.
WHOLE = frozenset({"gpu", "jobs", "memory", "storage"})

Amounts = Mapping[str, float]
Limits = Mapping[str, float | None]

_BYTES = ("memory", "storage")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_GIB = 3  # its place among the units
# Limits are spoken of in GiB, so half of one is; of the smaller units there is at least a whole one.
_LEAST = {_GIB: 0.1}


def total(amounts: Iterable[Amounts]) -> dict[str, float]:
    """The sum per held resource; exact, so that the order does not matter."""
    rows = list(amounts)
    return {resource: math.fsum(row.get(resource, 0) for row in rows) for resource in HELD}


def hours(amounts: Amounts, seconds: float) -> dict[str, float]:
    """Core and device hours of holding the amounts for so long."""
    return {name: amounts.get(of, 0) * seconds / 3600 for name, of in HOURS_OF.items()}


def in_words(resource: str, amount: float) -> str:
    """``3 cpu``, ``1 running job``, ``1.5 GiB of memory``, ``12.5 gpu-hours``."""
    if resource in _BYTES:
        return f"{bare(resource, amount)} of {resource}"
    if resource == "jobs":
        return f"{amount:g} running job" + ("" if amount == 1 else "s")
    return f"{bare(resource, amount)} {resource.replace('_', '-')}"


def bare(resource: str, amount: float) -> str:
    """The same without the noun."""
    if resource in _BYTES:
        return in_bytes(amount)
    return f"{amount:.4g}" if resource in HOURS_OF else f"{amount:g}"


def in_bytes(size: float) -> str:
    """``1.5 GiB``, ``0.5 GiB``, ``12.3 MiB``: three figures, in GiB from a tenth of one on, and where it is nothing."""
    power = _GIB
    while power and 0 < abs(size) < _LEAST.get(power, 1.0) * 1024**power:
        power -= 1
    while power + 1 < len(_UNITS) and abs(size) >= 1000 * 1024**power:
        power += 1
    return f"{size / 1024**power:.3g} {_UNITS[power]}"
