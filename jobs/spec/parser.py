"""Parser of job specifications: one schema for the form, the API, the command line and files.

``parse`` returns a resolved JobSpec, or raises ValidationFailed with every problem by field. A JobSpec is immutable;
the job stores its ``to_json``, and the files go to the code snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from jobs.messages import specification as messages
from jobs.spec.document import Document
from jobs.spec.fields import NAMES, READING_ORDER
from jobs.spec.model import JobSpec
from portal.common.errors import ValidationFailed

DEPTH_LIMIT = 20  # of nested lists and mappings
DOCUMENT_LIMIT = 16 * 1024**2  # bytes of a specification as text
WHOLE = "spec"  # the field name for problems of the document itself


def parse(source: object, *, find_dataset: Callable[[str], object]) -> JobSpec:
    """Return the specification that ``source`` (a mapping, or YAML or JSON text) describes.

    ``find_dataset`` is called with the name of the dataset and raises NotFound if it does not exist.

    Raises ValidationFailed: ``errors`` by field path (``roles.trainer.memory``); its extra ``positions`` holds
    ``{"files.train.py": {"line", "column"}}`` for Python files that cannot be parsed.
    """
    body = _load(source) if isinstance(source, str | bytes) else source
    if not isinstance(body, Mapping):
        raise ValidationFailed({WHOLE: [messages.NOT_A_MAPPING()]})
    document = Document(body, NAMES, find_dataset)
    for field in READING_ORDER:
        value = document.read(field.path, field.kind.read, field.default_in(document))
        document.values[field.path] = field.check(document, field.path, value)
    if document.errors:
        failure = ValidationFailed(document.errors)
        failure.extra["positions"] = document.positions
        raise failure
    return JobSpec.of(document.values)


def _load(text: str | bytes) -> object:
    if len(text) > DOCUMENT_LIMIT:
        raise ValidationFailed({WHOLE: [messages.DOCUMENT_TOO_LARGE(size=DOCUMENT_LIMIT // 1024**2)]})
    try:
        for depth, event in _events(text):
            # With aliases a few lines can expand to gigabytes, and a job needs none.
            if isinstance(event, yaml.AliasEvent):
                raise ValidationFailed({WHOLE: [messages.YAML_ALIAS()]})
            if depth > DEPTH_LIMIT:
                raise ValidationFailed({WHOLE: [messages.NESTED_TOO_DEEPLY()]})
        body: object = yaml.load(text, Loader=_YAML)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValidationFailed({WHOLE: [messages.YAML_INVALID(problem=_yaml_problem(error))]}) from None
    return body


def _events(text: str | bytes) -> Iterator[tuple[int, yaml.Event]]:
    """Yield the parser's events with their nesting depth."""
    depth = 0
    for event in yaml.parse(text, Loader=_YAML):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        yield depth, event


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C may be missing


class _YAML(_Base):
    """Reads 1e-3 as a number, as YAML 1.2 does; the library reads YAML 1.1, where it is a text."""


_YAML.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+"), list("-+0123456789"))


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."
    return "it cannot be read."
