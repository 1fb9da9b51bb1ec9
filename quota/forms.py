"""Parsing of forms with limits: one field per resource, memory and storage in GiB."""

from __future__ import annotations

from collections.abc import Mapping

from portal.common.errors import ValidationFailed
from quota import messages

# The resources that pages show and forms ask for.
SHOWN = ("cpu", "memory", "gpu", "jobs", "storage", "cpu_hours", "gpu_hours")
# The resources that namespaces share and may borrow.
SHARED = ("cpu", "memory", "gpu", "jobs")
IN_GIB = ("memory", "storage")
_GIB = 1024**3


def amounts_in(form: Mapping[str, str], names: tuple[str, ...], prefix: str = "") -> dict[str, float | None]:
    """Return the amount of each field in the form; None for an empty one. Raises ValidationFailed."""
    found, errors = {}, {}
    for name in names:
        text = form.get(prefix + name)
        if text is None:
            continue
        try:
            found[name] = _amount(name, text.strip())
        except ValueError:
            errors[prefix + name] = [messages.AMOUNT_NOT_A_NUMBER()]
    if errors:
        raise ValidationFailed(errors)
    return found


def _amount(name: str, text: str) -> float | None:
    if not text:
        return None
    number = float(text)
    return round(number * _GIB) if name in IN_GIB else number


def given(amounts: Mapping[str, float | None]) -> dict[str, float]:
    """Return the amounts without the empty ones."""
    return {name: amount for name, amount in amounts.items() if amount is not None}
