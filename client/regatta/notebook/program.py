"""Program of a job, made from a cell or a function and what it uses. Readable Python, to be changed by hand."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regatta.notebook.capture import MAIN, Capture, Captured
from regatta.notebook.errors import CaptureError, CellSyntaxError
from regatta.notebook.sources import Cells, Source

FILE = "train.py"
# Parameters travel in the environment of the job, as JSON: ``PARAM_lr=0.1``.
PREFIX = "PARAM_"
Scalar = bool | int | float | str | None

_FRAME = re.compile(r'^(\s*)File "(?:[^"]*/)?' + re.escape(FILE) + r'", line (\d+)')
_MAGIC = re.compile(r"^\s*[%!]")
_AWAIT = re.compile(r"'(?:await|async with|async for)' outside")


@dataclass
class Program:
    """Source text. ``origin``: for each line from the notebook its cell and its line there."""

    text: str
    env: dict[str, str] = field(default_factory=dict)
    origin: dict[int, tuple[str, int]] = field(default_factory=dict)

    def at_cells(self, line: str) -> str:
        """Return a line of a traceback with the place in the notebook instead of the place in the program."""
        found = _FRAME.match(line)
        if not found or int(found[2]) not in self.origin:
            return line
        cell, number = self.origin[int(found[2])]
        return f"{found[1]}{cell}, line {number}{line[found.end() :]}"


def of_cell(
    body: str, cells: Cells, params: Mapping[str, Scalar], *, label: str = "the cell", first_line: int = 2
) -> Program:
    """Return the program of a cell. ``body`` begins at line ``first_line`` of the cell that ``label`` names.

    Raises CellSyntaxError, and CaptureError for names that cannot be sent.
    """
    tree = parsed(body, label, first_line)
    capture = Capture(cells)
    given = frozenset(params)
    capture.take(tree, label, cells.namespace, given)
    problems = capture.found.problems + _parameter_problems(tree, capture.found, params)
    text, futures = _without_futures(body, ast.parse(body))
    writer = _written(capture.found, problems, futures, params, label)
    if params:
        writer.add("", "", f"# Parameters of the job: {PREFIX}... in its environment, as JSON.")
    for name in params:
        writer.add(f'{name} = _json.loads(_os.environ["{PREFIX}{name}"])')
    writer.add("", "", f"# {label}")
    writer.copy(text.rstrip("\n"), label, first_line)
    return writer.program(params)


def of_function(function: Callable[..., object], cells: Cells, params: Mapping[str, Scalar]) -> Program:
    """Return the program that calls a function with the parameters. Raises CaptureError."""
    name = getattr(function, "__name__", "")
    if not inspect.isfunction(function) or name == "<lambda>":
        raise CaptureError([f"{function!r} is not a function that is defined with `def`. Define one that calls it."])
    try:
        inspect.signature(function).bind(**params)
    except TypeError as error:
        raise CaptureError([f"`{name}` cannot be called with these parameters: {error}."]) from None
    capture = Capture(cells, frozenset({MAIN, function.__module__}))
    capture.root(name, function)
    writer = _written(capture.found, capture.found.problems, set(), params, f"the function {name}")
    arguments = ", ".join(f'{each}=_json.loads(_os.environ["{PREFIX}{each}"])' for each in params)
    writer.add("", "", 'if __name__ == "__main__":', f"    {name}({arguments})")
    return writer.program(params)


class _Writer:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._origin: dict[int, tuple[str, int]] = {}

    def add(self, *lines: str) -> None:
        self._lines += lines

    def copy(self, text: str, cell: str, first: int) -> None:
        for number, line in enumerate(text.split("\n"), start=first):
            self._lines.append(line)
            self._origin[len(self._lines)] = cell, number

    def program(self, params: Mapping[str, Scalar]) -> Program:
        env = {f"{PREFIX}{name}": json.dumps(value) for name, value in params.items()}
        return Program("\n".join(self._lines) + "\n", env, self._origin)


def _written(
    found: Captured, problems: list[str], futures: set[str], params: Mapping[str, Scalar], what: str
) -> _Writer:
    """Write everything above the code itself. Raises CaptureError if there are problems."""
    if problems:
        raise CaptureError(problems)
    if any(source.future_annotations for source in found.definitions):
        futures = futures | {"annotations"}
    writer = _Writer()
    writer.add(f"# Made by Regatta from a notebook: {what}, and what it uses.")
    if futures:
        writer.add(f"from __future__ import {', '.join(sorted(futures))}", "")
    if params:
        writer.add("import json as _json", "import os as _os")
    writer.add(*sorted(found.imports))
    if found.constants:
        writer.add("", *(f"{name} = {value}" for name, value in found.constants.items()))
    for source in found.definitions:
        _define(writer, source)
    return writer


def _define(writer: _Writer, source: Source) -> None:
    writer.add("", "", f"# {source.cell}, line {source.line}")
    writer.copy(source.text, source.cell, source.line)
    if source.after:
        writer.add("", "", source.after)


def parsed(body: str, label: str, first_line: int = 1) -> ast.Module:
    """Return the tree with the line numbers of the cell. Raises CellSyntaxError."""
    lines = "\n" * (first_line - 1) + body
    try:
        tree = ast.parse(lines)
        # Some errors are found only here, such as `return` outside a function.
        compile(_without_futures(lines, tree)[0], label, "exec", dont_inherit=True)
    except SyntaxError as error:
        error.text = error.text or lines.split("\n")[(error.lineno or 1) - 1]
        raise CellSyntaxError(error, label, _hint(error)) from None
    return tree


def _hint(error: SyntaxError) -> str:
    if _MAGIC.match(error.text or ""):
        return ". Magics and shell commands run only in a notebook: leave them out of the job"
    if _AWAIT.match(error.msg):
        return ". Only a notebook allows this. Put it into an `async def`, and call that with asyncio.run()"
    return ""


def _without_futures(body: str, tree: ast.Module) -> tuple[str, set[str]]:
    """Return the body without its ``from __future__`` lines, which must be the first of a program, and their names."""
    lines, found = body.split("\n"), set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found |= {alias.name for alias in node.names}
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[number - 1] = f"# {lines[number - 1]}"
    return "\n".join(lines), found


def _parameter_problems(tree: ast.Module, found: Captured, params: Mapping[str, Any]) -> list[str]:
    """Name the parameters that would have no effect."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for source in found.definitions:
        used |= {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    problems = [f"Nothing in the cell uses the parameter `{name}`." for name in params if name not in used]
    for node in tree.body:
        for target in getattr(node, "targets", ()):
            if isinstance(target, ast.Name) and target.id in params:
                problems.append(
                    f"Line {node.lineno} of the cell sets `{target.id}`, so the parameter would have no effect. "
                    "Remove the line."
                )
    return problems
