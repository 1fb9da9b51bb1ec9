"""``deploy/values.yaml``: every field with its default and its description, written from the table of fields."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from portal.deployment.fields import FIELDS, SECTIONS, Field

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./:@-]*")
HEAD = """# All values of an installation on Kubernetes, with their defaults. Write the values to change to a file:
#
#   python3 manage.py render-manifests values.yaml > manifests.yaml
#
# docs/operations.md describes the steps. Passwords are in Secrets, never here (deploy/make_secrets.py).
# Written by: python3 manage.py render-manifests --defaults
"""


def documented() -> str:
    return HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    open_path: list[str] = []
    for field in FIELDS:
        *parents, _ = field.path.split(".")
        shared = _shared(open_path, parents)
        for depth in range(shared, len(parents)):
            yield from _section(".".join(parents[: depth + 1]), depth)
        open_path = parents
        yield from _field(field, len(parents))


def _shared(one: list[str], other: list[str]) -> int:
    """Return how many names the two paths have in common at their beginnings."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _section(path: str, depth: int) -> Iterator[str]:
    if depth == 0:
        yield "\n"
        if path in SECTIONS:
            yield from _comment(SECTIONS[path], 0)
    yield f"{'  ' * depth}{path.rpartition('.')[2]}:\n"


def _field(field: Field, depth: int) -> Iterator[str]:
    if depth == 0:
        yield "\n"
    yield from _comment(f"{field.description}.", depth)
    yield f"{'  ' * depth}{field.path.rpartition('.')[2]}: {_written(field.default)}\n"


def _comment(text: str, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for line in textwrap.wrap(text, _WIDTH - len(indent) - 2):
        yield f"{indent}# {line}\n"


def _written(value: Any) -> str:
    """Return a value as YAML in one line. JSON is YAML; a text has quotes only if it needs them."""
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
    return value if is_plain else json.dumps(value)
