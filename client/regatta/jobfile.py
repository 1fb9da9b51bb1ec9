"""Job file: YAML with the specification, and the code beside it.

``files`` may contain the code itself (``{train.py: "..."}``), or names of files beside it (``[train.py, net.py]``);
without it, only the entrypoint is sent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from regatta import tree
from regatta.errors import BadFile

# Name of a job without a file.
USUAL_NAME = "job"
_PYTHONS = ("python", "python3")
_NATIVE, _COMMAND = "native", "command"
# Package that scripts of the native framework import.
_RUNTIME = "runtime"
REQUIREMENTS_FILE = "requirements.txt"
# Keys of the specification for the options that are not at its top level.
_PLACES: Mapping[str, Sequence[str]] = {
    "trainers": ("roles", "trainer", "replicas"),
    "min_trainers": ("roles", "trainer", "min"),
    "max_trainers": ("roles", "trainer", "max"),
    "pservers": ("roles", "pserver", "replicas"),
    "cpu": ("roles", "trainer", "cpu"),
    "memory": ("roles", "trainer", "memory"),
    "gpu": ("roles", "trainer", "gpu"),
    "pserver_cpu": ("roles", "pserver", "cpu"),
    "pserver_memory": ("roles", "pserver", "memory"),
}


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number, as YAML 1.2 does; the library reads YAML 1.1, where it is a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+"), list("-+0123456789")
)


def load(file: Path, *, with_code: bool = False) -> dict[str, Any]:
    """Return the specification in the form that the portal accepts. ``with_code``: other files, perhaps with the
    entrypoint, are added later.

    Raises BadFile.
    """
    try:
        spec = yaml.load(_text(file), Loader=_Loader)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise BadFile(f"{file} is not valid YAML: {_where(error)}.") from None
    if not isinstance(spec, dict):
        raise BadFile(f"{file} is not a job specification: expected a mapping with keys such as `name`.")
    return {**spec, "files": _files(spec, file.parent, with_code=with_code)}


def with_program(spec: dict[str, Any], program: Sequence[str], framework: str | None = None) -> dict[str, Any]:
    """Return the specification of a program with its arguments.

    The files that the arguments name are included, and the modules beside them that these import.

    ``framework`` is the requested one. Without it, and without one in ``spec``, a single Python file is a native job if
    it or a file sent with it imports ``runtime``, and every other program is a command.
    """
    files = {**_mapping(spec.get("files")), **_named_files(program)}
    changed = {"name": USUAL_NAME, **spec, "files": files}
    script = _script(program)
    chosen = framework or spec.get("framework") or (_NATIVE if script and _is_native(files) else _COMMAND)
    run = [_PYTHONS[0], script] if script else list(program)
    return {**changed, "framework": chosen, "entrypoint": script if script and chosen != _COMMAND else run}


def requirements_beside(program: Sequence[str], code: Sequence[Path]) -> Path | None:
    """Return the requirements.txt of the code's folder or of the script's folder; None if there is none."""
    folders = [path for path in code if path.is_dir()] + [Path(word).parent for word in program if Path(word).is_file()]
    return next((file for folder in folders if (file := folder / REQUIREMENTS_FILE).is_file()), None)


def requirements_of(file: Path) -> list[str]:
    """Return the lines of a requirements file without comments. Raises BadFile."""
    lines = (line.split(" #")[0].strip() for line in _text(file).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def changed(spec: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification with the values of the options; those that are None are left out."""
    for name, value in given.items():
        if value is None:
            continue
        *way, last = _PLACES.get(name, (name,))
        target = spec
        for step in way:
            target = target.setdefault(step, {})
        target[last] = value
    return spec


def add(
    spec: dict[str, Any],
    *,
    code: Sequence[Path],
    requirements: Sequence[str],
    env: Mapping[str, str],
    params: Mapping[str, str],
) -> None:
    """Add the values of the flags to the specification."""
    if code:
        kept = spec.get("files") if isinstance(spec.get("files"), dict) else {}
        spec["files"] = {**(kept or {}), **{each.path: _text(each.file) for each in tree.files_of(code)}}
    if requirements:
        spec["requirements"] = [*(spec.get("requirements") or []), *requirements]
    if env:
        spec["env"] = {**(spec.get("env") or {}), **env}
    if params:
        spec["params"] = {**_mapping(spec.get("params")), **{name: scalar(text) for name, text in params.items()}}


def scalar(text: str) -> bool | int | float | str:
    """Return the value of a parameter as YAML reads it: ``0.1`` and ``true`` are no texts, ``"0.1"`` in quotes is."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _named_files(program: Sequence[str]) -> dict[str, str]:
    relative = [word for word in program if not Path(word).is_absolute() and ".." not in Path(word).parts]
    files = {word: _text(Path(word)) for word in relative if Path(word).is_file()}
    for script in [path for path in files if path.endswith(".py")]:
        with_modules(files, script, Path(script).parent)
    return files


def with_modules(files: dict[str, str], path: str, folder: Path) -> None:
    """Add the modules below ``folder`` that a file imports, recursively. ``folder`` is the script's, as in sys.path."""
    for module in _imported(files[path]):
        for found in _sources(folder, module):
            name = found.as_posix()
            if name not in files:
                files[name] = _text(found)
                with_modules(files, name, folder)


def _sources(folder: Path, module: str) -> list[Path]:
    """Return the files of a module's outermost package, or the module's own file; empty if it is not in the folder."""
    top = folder / module.split(".")[0]
    if (file := top.with_name(f"{top.name}.py")).is_file():
        return [file]
    return sorted(top.rglob("*.py")) if (top / "__init__.py").is_file() else []


def _script(program: Sequence[str]) -> str:
    """Return the Python file of ``train.py`` or ``python train.py``; an empty string for any other program."""
    words = program[1:] if len(program) == 2 and program[0] in _PYTHONS else program
    return words[0] if len(words) == 1 and words[0].endswith(".py") else ""


def _is_native(files: Mapping[str, str]) -> bool:
    return any(imports_runtime(text) for path, text in files.items() if path.endswith(".py"))


def imports_runtime(source: str) -> bool:
    """Return whether a Python file uses the package of the native framework."""
    return any(name.split(".")[0] == _RUNTIME for name in _imported(source))


def _imported(source: str) -> list[str]:
    """Return the modules that a Python file imports by absolute names."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return []  # the portal reports the line
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]


def _files(spec: dict[str, Any], folder: Path, *, with_code: bool) -> Any:
    # An image contains its program; elsewhere the entrypoint is a file in the folder of the specification.
    alone = isinstance(spec.get("entrypoint"), str) and not spec.get("image")
    if with_code and alone and not (folder / spec["entrypoint"]).is_file():
        alone = False
    named = spec.get("files", [spec["entrypoint"]] if alone else [])
    if not isinstance(named, list):
        return named
    return {str(name): _text(folder / str(name)) for name in named}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{file} is not UTF-8 text (byte {error.start}).") from None


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or "it cannot be parsed"
    return f"{what} in line {mark.line + 1}, column {mark.column + 1}" if mark else str(what)
