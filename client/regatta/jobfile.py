"""A job's file: YAML with the specification, and the code beside it.

``files`` may hold the code itself (``{train.py: "..."}``), or name files beside it (``[train.py, net.py]``); where it
is left out, the entrypoint alone is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from regatta import tree
from regatta.errors import BadFile

# What a job without a file is called.
USUAL_NAME = "job"
_PYTHONS = ("python", "python3")


def load(file: Path) -> dict[str, Any]:
    """The specification as the portal takes it. Raises BadFile with a sentence."""
    try:
        spec = yaml.safe_load(_text(file))
    except yaml.YAMLError as error:
        raise BadFile(f"{file} is no YAML: {_where(error)}.") from None
    if not isinstance(spec, dict):
        raise BadFile(f"{file} holds no job; it must be a mapping that begins with `name: ...`.")
    return {**spec, "files": _files(spec, file.parent)}


def with_program(spec: dict[str, Any], program: Sequence[str]) -> dict[str, Any]:
    """The specification of a program with its arguments. A single Python file is a native job, whatever else is a
    command; the files that it names are sent along."""
    words = list(program[1:]) if len(program) == 2 and program[0] in _PYTHONS else list(program)
    named = [word for word in words if not Path(word).is_absolute() and ".." not in Path(word).parts]
    files = {word: _text(Path(word)) for word in named if Path(word).is_file()}
    kept = spec.get("files") if isinstance(spec.get("files"), dict) else {}
    changed = {**spec, "files": {**(kept or {}), **files}}
    changed.setdefault("name", USUAL_NAME)
    if len(words) == 1 and words[0].endswith(".py"):
        return {**changed, "entrypoint": words[0]}
    return {**changed, "framework": spec.get("framework", "command"), "entrypoint": list(program)}


def add(spec: dict[str, Any], *, code: Sequence[Path], requirements: Sequence[str], env: Mapping[str, str]) -> None:
    """Put what flags say beside what the specification has."""
    if code:
        kept = spec.get("files") if isinstance(spec.get("files"), dict) else {}
        spec["files"] = {**(kept or {}), **{each.path: _text(each.file) for each in tree.files_of(code)}}
    if requirements:
        spec["requirements"] = [*(spec.get("requirements") or []), *requirements]
    if env:
        spec["env"] = {**(spec.get("env") or {}), **env}


def _files(spec: dict[str, Any], room: Path) -> Any:
    # An image of its own has what it runs; elsewhere the entrypoint is a file beside this one.
    alone = isinstance(spec.get("entrypoint"), str) and not spec.get("image")
    named = spec.get("files", [spec["entrypoint"]] if alone else [])
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
