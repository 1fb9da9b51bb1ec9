"""Parsing and formatting of quantities: memory, CPU cores, durations. The only place that does either. Pure.

Each parser raises ValueError with a message that names the accepted forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from jobs.messages import specification as messages
from runtime.messages import Template

# Kubernetes notation.
_UNITS: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_CORES: Mapping[str, float] = {"": 1, "m": 0.001}
_SPANS: Mapping[str, int] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", re.ASCII)


def memory(value: object) -> int:
    """Return the bytes of ``"512Mi"``, ``"1G"``, ``1.5Gi`` or a plain number of bytes."""
    return int(_amount(value, _UNITS, messages.MEMORY_INVALID))


def cores(value: object) -> float:
    """Return the CPU cores of ``1``, ``0.5`` or ``"500m"`` (thousandths)."""
    amount = _amount(value, _CORES, messages.CPU_INVALID)
    return round(amount, 3)


def span(value: object) -> timedelta:
    """Return the duration of ``"1h"``, ``"90s"``, ``"30m"``, ``"2d"`` or a plain number of seconds."""
    seconds = _amount(value, _SPANS, messages.TIME_INVALID)
    if seconds > timedelta.max.total_seconds() / 2:
        raise ValueError(messages.TIME_INVALID(value=shown(value)))
    return timedelta(seconds=seconds)


def memory_text(amount: int) -> str:
    """Return the shortest exact text for a number of bytes; ``memory`` reads it back."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if amount and amount % _UNITS[unit] == 0:
            return f"{amount // _UNITS[unit]}{unit}"
    return str(amount)


def span_text(length: timedelta) -> str:
    """Return the shortest exact text for a duration; ``span`` reads it back."""
    seconds = length.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SPANS[unit] == 0:
            return f"{int(seconds // _SPANS[unit])}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _amount(value: object, units: Mapping[str, float], invalid: Template) -> float:
    if isinstance(value, str):
        found = _NUMBER_AND_UNIT.fullmatch(value.strip())
        if found is not None and found[2] in units:
            number = float(found[1]) if "." in found[1] else int(found[1])
            return number * units[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**15:  # excludes NaN too
        return value
    raise ValueError(invalid(value=shown(value)))


def shown(value: object) -> str:
    """Return a value quoted for a message: cut to 40 characters, without text that UTF-8 or JSON cannot encode."""
    text = words(value)
    return f'"{text[:40]}…"' if len(text) > 40 else f'"{text}"'


def words(value: object) -> str:
    """Return a value as encodable text: JSON can hold half a surrogate pair, UTF-8 cannot."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except ValueError:
        return "a very long number"  # of more digits than Python writes out
