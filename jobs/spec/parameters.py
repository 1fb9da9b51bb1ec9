"""Parameters of a job: named numbers, texts and booleans that its program reads. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from jobs.messages import specification as messages
from runtime import contract

Value = bool | int | float | str

MOST = 200
NAME_LENGTH = 100
TEXT_LENGTH = 6000  # characters of a text, as in MLflow
TOTAL_BYTES = 64 * 1024  # of all names and values as JSON, which reach the program as one environment variable
# Beyond it a program that reads the value as a floating-point number gets another one.
LARGEST_INTEGER = 2**53
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{NAME_LENGTH - 1}}}")


def problem(name: object, value: object) -> str:
    """Return why this is no parameter, or an empty text."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return messages.PARAMETER_NAME_INVALID(most=NAME_LENGTH)
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        fits = -LARGEST_INTEGER <= value <= LARGEST_INTEGER
        return "" if fits else messages.PARAMETER_NUMBER_TOO_LARGE()
    if isinstance(value, float):
        return "" if math.isfinite(value) else messages.PARAMETER_NOT_FINITE()
    if not isinstance(value, str):
        return messages.PARAMETER_NOT_SCALAR()
    if "\x00" in value or not _encodable(value):
        return messages.VALUE_CHARACTER_INVALID()
    return messages.PARAMETER_TOO_LONG(most=TEXT_LENGTH) if len(value) > TEXT_LENGTH else ""


def same_variable(names: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield each name whose environment variable an earlier name has, and that name."""
    owners: dict[str, str] = {}
    for name in names:
        owner = owners.setdefault(contract.parameter_variable(name), name)
        if owner != name:
            yield name, owner


def as_json(parameters: Mapping[str, Value]) -> str:
    return json.dumps(dict(parameters), ensure_ascii=False, separators=(",", ":"))


def variables(parameters: Mapping[str, Value]) -> dict[str, str]:
    """Return the environment variables of a program: all parameters as JSON, and one for each."""
    if not parameters:
        return {}
    each = {contract.parameter_variable(name): text(value) for name, value in parameters.items()}
    return {contract.PARAMETERS: as_json(parameters), **each}


def text(value: Value) -> str:
    """Return the value as a program reads it from its environment: booleans as true and false."""
    return value if isinstance(value, str) else json.dumps(value)


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
