"""Notebook as a job: its code cells become a program and a specification, without running it."""

from __future__ import annotations

import ast
import builtins
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regatta.errors import BadFile
from regatta.notebook import names, program, submission
from regatta.notebook.errors import CaptureError
from regatta.notebook.magic import options_of
from regatta.notebook.sources import Cells

SKIP = "skip"
_TRAIN = "%%train"
_PIP = re.compile(r"^\s*[%!]\s*pip3?\s+install\s+(.*)$")
_ONLY_HERE = "regatta"


@dataclass(frozen=True)
class Cell:
    """Code cell. ``number`` counts the code cells of the notebook from 1."""

    number: int
    text: str

    @property
    def label(self) -> str:
        return f"cell {self.number}"


@dataclass
class Converted:
    """Specification with the program in ``files``, and a remark for everything that was left out."""

    spec: dict[str, Any]
    remarks: list[str] = field(default_factory=list)


def convert(file: Path, *, cell: int | None = None) -> Converted:
    """Return the job that a notebook describes.

    With a ``%%train`` cell, the job is that cell with the definitions above that it uses, and has the options of the
    cell. Without one, it is all code cells in order. Cells with the tag ``skip`` and magics are left out;
    ``%pip install`` becomes ``requirements``. ``cell`` chooses one of several ``%%train`` cells by its number.

    Raises BadFile, and CaptureError for code that cannot run in a job.
    """
    remarks: list[str] = []
    cells = list(_cells(file, remarks))
    chosen = _train_cell([each for each in cells if each.text.startswith(_TRAIN)], cell)
    others = [
        each for each in cells if not each.text.startswith(_TRAIN) and (not chosen or each.number < chosen.number)
    ]
    packages: list[str] = []
    plain = [Cell(each.number, _without_magics(each, packages, remarks)) for each in others]
    options: Mapping[str, Any] = {}
    if chosen is not None:
        line, _, body = chosen.text.partition("\n")
        options = options_of(line.removeprefix(_TRAIN))
        main = Cell(chosen.number, body)
        plain = [*_used_by(main, plain, {name for name, _ in options["params"]}), main]
    made = _program(plain, {name: submission.parameter(value) for name, value in options.get("params", ())}, file.name)
    given = {name: value for name, value in options.items() if name in submission.Fields.__annotations__}
    given["name"] = given.get("name") or re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "notebook"
    requirements = [*packages, *options.get("requirements", ())]
    env = dict(options.get("env", ()))
    spec = submission.specification(made, given, requirements=requirements, env=env, folder=file.parent)
    return Converted(spec, remarks)


def _cells(file: Path, remarks: list[str]) -> Iterator[Cell]:
    """Yield the code cells that are not empty and not skipped."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        found = [each for each in body["cells"] if each["cell_type"] == "code"]
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise BadFile(f"{file} is not a notebook in the format 4. Open it in Jupyter and save it again.") from None
    for number, each in enumerate(found, start=1):
        text = "".join(each["source"])
        if SKIP in each.get("metadata", {}).get("tags", ()):
            remarks.append(f"cell {number}: left out, because it has the tag {SKIP}.")
        elif text.strip():
            yield Cell(number, text)


def _train_cell(found: Sequence[Cell], wanted: int | None) -> Cell | None:
    if wanted is None and len(found) < 2:
        return found[0] if found else None
    numbers = ", ".join(str(each.number) for each in found) or "none"
    chosen = next((each for each in found if each.number == wanted), None)
    if chosen is None:
        raise BadFile(
            f"Choose one of the {_TRAIN} cells with --cell NUMBER. Their numbers among the code cells: {numbers}."
        )
    return chosen


def _without_magics(cell: Cell, packages: list[str], remarks: list[str]) -> str:
    """Return the text with comments in place of magics and shell commands, so that the line numbers stay."""
    if cell.text.startswith("%%"):
        remarks.append(f"{cell.label}: left out, because {cell.text.split()[0]} runs only in a notebook.")
        return ""
    lines = cell.text.split("\n")
    for index, line in enumerate(lines):
        if pip := _PIP.match(line):
            packages += [word for word in shlex.split(pip[1]) if not word.startswith("-")]
        elif line.lstrip()[:1] in ("%", "!") and not _is_python("\n".join(lines[: index + 1])):
            remarks.append(
                f"{cell.label}, line {index + 1}: left out, because it runs only in a notebook: {line.strip()}"
            )
        else:
            continue
        lines[index] = f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}"
    return "\n".join(lines)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _used_by(main: Cell, above: Sequence[Cell], params: set[str]) -> list[Cell]:
    """Return the statements of the cells above that the cell needs, directly or through another one."""
    statements = [(cell, node) for cell in above for node in program.parsed(cell.text, cell.label).body]
    needed = set(names.needs(program.parsed(main.text, main.label, 2)).all) - params
    kept: set[int] = set()
    before = -1
    while before != len(kept):
        before = len(kept)
        for index, (_, node) in enumerate(statements):
            if index not in kept and (names.bound(node) | _changed_by(node)) & needed:
                kept.add(index)
                needed |= set(names.needs(ast.Module([node], [])).all) - params
    found: list[Cell] = []
    for index in sorted(kept):
        cell, node = statements[index]
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        found.append(Cell(cell.number, "\n".join(cell.text.split("\n")[first - 1 : node.end_lineno])))
    return found


def _changed_by(statement: ast.stmt) -> set[str]:
    """Return the names of objects that a statement changes: ``rates.append(1)`` and ``rates[0] = 1``."""
    changed = list(getattr(statement, "targets", ()))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        changed.append(statement.value.func)
    found: set[str] = set()
    for node in changed:
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if inner is not node and isinstance(inner, ast.Name):
            found.add(inner.id)
    return found


def _program(cells: Sequence[Cell], params: Mapping[str, program.Scalar], notebook: str) -> program.Program:
    """Return the cells one after another. Raises CaptureError for names that exist only in a notebook."""
    parts, previous = [], 0
    for cell in cells:
        program.parsed(cell.text, cell.label)
        parts += [f"\n\n# {cell.label} of {notebook}"] if cell.number != previous else [""]
        parts.append(cell.text.strip("\n"))
        previous = cell.number
    body = "\n".join(parts).strip("\n")
    tree = ast.parse(body)
    if any(names.is_import_of(node, _ONLY_HERE) for node in ast.walk(tree)):
        raise CaptureError([f"A job cannot submit jobs. Add the tag {SKIP} to the cells that use `{_ONLY_HERE}`."])
    wanted = names.needs(tree)
    known = {*params, *wanted.own, *dir(builtins)}
    missing = [name for name in wanted.all if name not in known]
    if missing and not wanted.star:
        raise CaptureError(
            [f"`{name}` is not defined in the cells of the job. Define it, or add the tag {SKIP}." for name in missing]
        )
    return program.of_cell(body, Cells(dict.fromkeys(wanted.own)), params, label=notebook, first_line=1)
