"""A job's file: YAML with the specification, and the code beside it.

``files`` may hold the code itself (``{train.py: "..."}``), or name files beside it (``[train.py, net.py]``); where it
is left out, the entrypoint alone is taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from client.errors import BadFile


def load(file: Path) -> dict[str, Any]:
    """The specification as the portal takes it. Raises BadFile with a sentence."""
    try:
        spec = yaml.safe_load(_text(file))
    except yaml.YAMLError as error:
        raise BadFile(f"{file} is no YAML: {_where(error)}.") from None
    if not isinstance(spec, dict):
        raise BadFile(f"{file} holds no job; it must be a mapping that begins with `name: ...`.")
    return {**spec, "files": _files(spec, file.parent)}


def _files(spec: dict[str, Any], room: Path) -> Any:
    named = spec.get("files", [spec["entrypoint"]] if isinstance(spec.get("entrypoint"), str) else [])
    if not isinstance(named, list):
        return named
    return {str(name): _text(room / str(name)) for name in named}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{file} is no text in UTF-8 (byte {error.start}).") from None


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or "it cannot be parsed"
    return f"{what} in line {mark.line + 1}, column {mark.column + 1}" if mark else str(what)
