"""Shipped example jobs.

Each has a folder with ``job.yaml`` (titles, descriptions, the specification without its files) and the job's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_DIRECTORY = Path(__file__).resolve().parent
_DESCRIPTION = "job.yaml"
_CODE = (".py", ".sh")


@dataclass(frozen=True)
class Example:
    """An example job. ``spec`` is a complete specification with its files, ready to submit."""

    name: str
    title: str
    title_zh: str
    description: str
    description_zh: str
    spec: Mapping[str, Any]


@cache
def catalogue() -> tuple[Example, ...]:
    """Return all examples, sorted by their ``order``: those for beginners first."""
    bodies = {
        path.parent: yaml.safe_load(path.read_text(encoding="utf-8")) for path in _DIRECTORY.glob(f"*/{_DESCRIPTION}")
    }
    ordered = sorted(bodies, key=lambda folder: (bodies[folder].get("order", 100), folder.name))
    return tuple(_example(folder, bodies[folder]) for folder in ordered)


def _example(folder: Path, body: Mapping[str, Any]) -> Example:
    code = (path for path in sorted(folder.iterdir()) if path.suffix in _CODE)
    files = {path.name: path.read_text(encoding="utf-8") for path in code}
    return Example(
        name=folder.name,
        title=body["title"],
        title_zh=body["title_zh"],
        description=body["description"],
        description_zh=body["description_zh"],
        spec={**body["spec"], "files": files},
    )
