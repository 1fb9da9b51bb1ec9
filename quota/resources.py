"""Amounts of resources: names, sums and formatting for messages. Pure; units as in ``quota.models``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from quota import messages
from runtime.messages import Template

# The resources that an attempt holds while it runs, in the order in which a refusal names them.
HELD = ("cpu", "memory", "gpu", "jobs", "storage")
# The resources that are counted over time, and the held resource that each of them counts.
HOURS_OF: Mapping[str, str] = {"cpu_hours": "cpu", "gpu_hours": "gpu"}
RESOURCES = (*HELD, *HOURS_OF)
# Resources with whole numbers only.
WHOLE = frozenset({"gpu", "jobs", "memory", "storage"})

Amounts = Mapping[str, float]
Limits = Mapping[str, float | None]

_BYTES = ("memory", "storage")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_GIB = 3  # its place among the units
# Amounts from 0.1 GiB on are shown in GiB, like limits; smaller units show at least 1.
_LEAST = {_GIB: 0.1}


_AMOUNTS: Mapping[str, Template] = {
    "cpu": messages.AMOUNT_OF_CPU,
    "memory": messages.AMOUNT_OF_MEMORY,
    "gpu": messages.AMOUNT_OF_GPU,
    "jobs": messages.RUNNING_JOB_COUNT,
    "storage": messages.AMOUNT_OF_STORAGE,
    "cpu_hours": messages.AMOUNT_OF_CPU_HOURS,
    "gpu_hours": messages.AMOUNT_OF_GPU_HOURS,
}


def total(amounts: Iterable[Amounts]) -> dict[str, float]:
    """Return the sum per held resource. It is exact, so that the order does not matter."""
    rows = list(amounts)
    return {resource: math.fsum(row.get(resource, 0) for row in rows) for resource in HELD}


def hours(amounts: Amounts, seconds: float) -> dict[str, float]:
    """Return the core and device hours of holding the amounts for ``seconds``."""
    return {name: amounts.get(of, 0) * seconds / 3600 for name, of in HOURS_OF.items()}


def in_words(resource: str, amount: float) -> str:
    """Format an amount with its resource: ``3 cpu``, ``1 running job``, ``1.5 GiB of memory``, ``12.5 gpu-hours``."""
    return (
        messages.RUNNING_JOB_COUNT_ONE(amount=1)
        if resource == "jobs" and amount == 1
        else _AMOUNTS[resource](amount=bare(resource, amount))
    )


def bare(resource: str, amount: float) -> str:
    """Format an amount without its resource: ``3``, ``1``, ``1.5 GiB``, ``12.5``."""
    if resource in _BYTES:
        return in_bytes(amount)
    return f"{amount:.4g}" if resource in HOURS_OF else f"{amount:g}"


def in_bytes(size: float) -> str:
    """Format bytes with three digits: ``1.5 GiB``, ``0.5 GiB``, ``12.3 MiB``. Zero, and 0.1 GiB or more, is in GiB."""
    power = _GIB
    while power and 0 < abs(size) < _LEAST.get(power, 1.0) * 1024**power:
        power -= 1
    while power + 1 < len(_UNITS) and abs(size) >= 1000 * 1024**power:
        power += 1
    return f"{size / 1024**power:.3g} {_UNITS[power]}"
