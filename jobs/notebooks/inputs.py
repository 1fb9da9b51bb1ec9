"""Fields of a notebook that a caller gives: read and checked with the rules of job specifications. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from jobs.messages import notebooks as messages
from jobs.spec import quantities, validators
from jobs.spec.document import Document
from jobs.spec.fields import NAMES
from jobs.spec.kinds import read_integer
from portal.common.errors import ValidationFailed

Given = TypeVar("Given")
Value = TypeVar("Value")

SMALLEST_MEMORY = 512 * 1024**2
MOST_GPUS = 64
SHORTEST_IDLE, LONGEST_IDLE = timedelta(minutes=1), timedelta(days=7)


@dataclass(frozen=True)
class Fields:
    """Resources and packages: cores, bytes, devices; ``idle`` in seconds, 0: never stopped."""

    name: str
    cpu: float = 1.0
    memory: int = 2 * 1024**3
    gpu: int = 0
    requirements: tuple[str, ...] = ()
    idle: int = 30 * 60


def read(body: Mapping[str, Any], before: Fields | None = None) -> Fields:
    """Return the fields; those that are absent are as ``before`` or the default. Raises ValidationFailed."""
    document = Document({"name": body.get("name", before.name if before else "")}, NAMES, lambda name: None)
    name = validators.check_name(document, "name", str(document.given("name") or ""))
    errors = {field: list(texts) for field, texts in document.errors.items()}
    usual = before or Fields(name)
    values: dict[str, Any] = {}
    for field, reading in _READINGS.items():
        given = body.get(field)
        try:
            values[field] = getattr(usual, field) if given is None else reading(given)
        except ValueError as error:
            errors[field] = [str(error) if not error.args else error.args[0]]
    if errors:
        raise ValidationFailed(errors)
    return Fields(name=name, **values)


def _cpu(given: object) -> float:
    return _checked(validators.check_cpu, quantities.cores(given))


def _memory(given: object) -> int:
    memory = quantities.memory(given)
    if memory < SMALLEST_MEMORY:
        raise ValueError(messages.NOTEBOOK_MEMORY_TOO_SMALL(least=quantities.memory_text(SMALLEST_MEMORY)))
    return memory


def _gpu(given: object) -> int:
    return read_integer(given, 0, MOST_GPUS)


def _requirements(given: object) -> tuple[str, ...]:
    lines = given.splitlines() if isinstance(given, str) else given
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(messages.REQUIREMENTS_NOT_TEXT())
    return _checked(validators.check_requirements, [line for line in lines if line.strip()])


def _idle(given: object) -> int:
    length = quantities.span(given)
    if length and not SHORTEST_IDLE <= length <= LONGEST_IDLE:
        least, most = quantities.span_text(SHORTEST_IDLE), quantities.span_text(LONGEST_IDLE)
        raise ValueError(messages.IDLE_OUT_OF_RANGE(least=least, most=most))
    return int(length.total_seconds())


def _checked(check: Callable[[Document, str, Given], Value], value: Given) -> Value:
    """Return the value after the rule of the job specification. Raises ValueError."""
    document = Document({}, NAMES, lambda name: None)
    read_value = check(document, "", value)
    for texts in document.errors.values():
        raise ValueError(texts[0])
    return read_value


_READINGS: Mapping[str, Callable[[object], Any]] = {
    "cpu": _cpu,
    "memory": _memory,
    "gpu": _gpu,
    "requirements": _requirements,
    "idle": _idle,
}
