"""Source text of functions and classes, as the cells contain it."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Source:
    """Text of a definition. ``cell`` names where it is from, and ``line`` is its first line there.

    ``after``: a further statement, for an object that the notebook calls by another name.
    """

    text: str
    tree: ast.Module
    cell: str
    line: int
    after: str = ""
    future_annotations: bool = False


class NoSource(Exception):
    """Why the source of an object is not known, as the end of a message that begins with its name."""


def _named(file: str) -> str:
    return Path(file).name


@dataclass(frozen=True)
class Cells:
    """Code that has run so far. ``texts``: the cells, oldest first; ``label`` names a file of compiled code."""

    namespace: Mapping[str, Any]
    texts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    label: Callable[[str], str] = _named

    def source_of(self, name: str, value: Any) -> Source:
        """Return the definition of a function or class. Raises NoSource."""
        if isinstance(value, type):
            return _renamed(self._of_class(value), name, value.__name__)
        function = inspect.unwrap(value)
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise NoSource("has no source text. Define it with `def` in a cell and run the cell.") from None
        file = inspect.getsourcefile(function) or function.__code__.co_filename
        text = textwrap.dedent("".join(lines))
        if function.__name__ == "<lambda>":
            return Source(*_lambda(text, name), self.label(file), first, future_annotations=_is_future(function))
        try:
            tree = ast.parse(text)
        except SyntaxError:
            raise NoSource("has source text that is not complete. Define it at the start of a line.") from None
        source = Source(text.rstrip("\n"), tree, self.label(file), first, future_annotations=_is_future(function))
        return _renamed(source, name, function.__name__)

    def _of_class(self, value: type) -> Source:
        """Return the newest definition of a class; Python does not keep the file of a class that a cell defines."""
        for label, text in self._places_of(value):
            for node in reversed(_parsed(text).body):
                if isinstance(node, ast.ClassDef) and node.name == value.__name__:
                    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                    own = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
                    return Source(own, ast.parse(own), label, first)
        raise NoSource("is a class without source text. Define it at the start of a cell and run the cell.")

    def _places_of(self, value: type) -> list[tuple[str, str]]:
        """Return the files of the methods and the cells, the most likely first."""
        methods = (inspect.unwrap(each) for each in vars(value).values() if isinstance(each, FunctionType))
        files = dict.fromkeys(method.__code__.co_filename for method in methods)
        known = [(self.label(file), text) for file in files if (text := "".join(linecache.getlines(file)))]
        return [*known, *reversed(self.texts)]


def _is_future(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return bool(code is not None and code.co_flags & __future__.annotations.compiler_flag)


def _renamed(source: Source, name: str, own: str) -> Source:
    if name == own:
        return source
    return Source(source.text, source.tree, source.cell, source.line, f"{name} = {own}", source.future_annotations)


def _lambda(text: str, name: str) -> tuple[str, ast.Module]:
    for node in _parsed(text).body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and name in names:
            return text.rstrip("\n"), ast.Module([node], [])
    raise NoSource("is a lambda without a statement of its own. Define it with `def`.")


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])
