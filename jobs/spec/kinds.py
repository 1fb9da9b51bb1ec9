"""Kinds of values in a job specification: how a value is read and stored, and its JSON Schema. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.messages import jobs as job_messages
from jobs.messages import specification as messages
from jobs.spec import quantities


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """Kind of a field's value, independent of all other fields.

    * ``schema``: JSON Schema of the usual form of the value.
    * ``read``: converts a value of a document; raises ValueError with a message for a person.
    * ``dump``, ``load``: convert to and from the stored JSON. ``load`` accepts values beyond the present limits.
    """

    schema: Mapping[str, Any]
    read: Callable[[Any], Any] = _unchanged
    dump: Callable[[Any], Any] = _unchanged
    load: Callable[[Any], Any] = _unchanged


def text(**schema: Any) -> Kind:
    """Return the kind of a text; ``schema`` adds keywords that a rule of the field enforces."""
    return Kind({"type": "string", **schema}, read_text)


def integer(least: int, most: int) -> Kind:
    """Return the kind of a whole number within bounds."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Kind(schema, lambda value: read_integer(value, least, most))


def choice(*names: str) -> Kind:
    """Return the kind of a text that is one of ``names``."""

    def read(value: object) -> str:
        name = read_text(value)
        if name not in names:
            raise ValueError(messages.VALUE_UNKNOWN(value=quantities.shown(name), names=", ".join(names)))
        return name

    return Kind({"type": "string", "enum": list(names)}, read)


def read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(messages.NOT_TEXT())
    return value


def read_integer(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(messages.NUMBER_INVALID(value=quantities.shown(value), least=least, most=most))
    return value


def read_mapping(value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(messages.NOT_A_MAPPING_OF_NAMES())
    return value


def _read_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(job_messages.NOT_A_BOOLEAN())
    return value


def _read_texts(value: Any) -> list[str] | tuple[str, ...]:
    given = value or ()
    if not isinstance(given, list | tuple) or not all(isinstance(line, str) for line in given):
        raise ValueError(messages.REQUIREMENTS_NOT_A_LIST())
    return given


def _number_or_text(example: str) -> dict[str, Any]:
    return {"anyOf": [{"type": "number"}, {"type": "string"}], "example": example}


BOOLEAN = Kind({"type": "boolean"}, _read_boolean)
TEXTS = Kind({"type": "array", "items": {"type": "string"}}, _read_texts, dump=list, load=tuple)
MAPPING = Kind({"type": "object", "additionalProperties": {"type": "string"}}, read_mapping, dump=dict, load=dict)
PARAMETERS = Kind(
    {
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "boolean"}, {"type": "number"}, {"type": "string"}]},
    },
    read_mapping,
    dump=dict,
    load=dict,
)
CORES = Kind(_number_or_text("500m"), quantities.cores, load=quantities.cores)
MEMORY = Kind(_number_or_text("512Mi"), quantities.memory, quantities.memory_text, quantities.memory)
SPAN = Kind(_number_or_text("1h"), quantities.span, quantities.span_text, quantities.span)
# The form depends on the framework: a rule of the field reads it.
COMMAND = Kind({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})


def unread_integer(least: int, most: int) -> Kind:
    """Return the kind of a whole number whose bounds depend on other fields: a rule of the field reads it."""
    return Kind(integer(least, most).schema)
