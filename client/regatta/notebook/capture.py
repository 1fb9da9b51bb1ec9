"""Source of what code uses from a notebook: imports, constants, functions and classes. Nothing is pickled.

Each name is looked up in the notebook's memory, as Python would; what it refers to decides how it is written:

* a module, or an object that can be imported from one: an import statement;
* a constant (``regatta.notebook.literals``): an assignment;
* a function or class of the notebook: its source, and what that uses in turn;
* anything else, such as an open file or a table of pandas: a problem with the next step.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import os.path
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from regatta.notebook import advice, literals, names
from regatta.notebook.sources import Cells, NoSource, Source

MAIN = "__main__"
# Names that IPython adds to a notebook and that no job has.
_OF_IPYTHON = frozenset({"display", "get_ipython", "In", "Out", "exit", "quit", "_", "__", "___"})
# Names that the program has, as every module.
_OF_MODULES = frozenset({"__name__", "__file__", "__doc__", "__builtins__"})


@dataclass
class Captured:
    """What code uses, ready to be written above it.

    ``definitions`` are in an order in which each can run. ``problems``: a message for each name that cannot be sent.
    """

    imports: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    definitions: list[Source] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Code that uses names. ``own``: names that it may bind itself; ``star``: it contains ``import *``."""

    tree: ast.Module
    where: str
    namespace: Mapping[str, Any]
    own: frozenset[str]
    star: bool


class Capture:
    """Captures for one program. ``home``: modules whose functions are written out instead of imported."""

    def __init__(self, cells: Cells, home: frozenset[str] = frozenset({MAIN})) -> None:
        self.found = Captured()
        self._cells = cells
        self._home = home
        self._seen: dict[str, Any] = {}

    def take(
        self, tree: ast.Module, where: str, namespace: Mapping[str, Any], given: frozenset[str] = frozenset()
    ) -> None:
        """Capture what ``tree`` needs. ``given``: names that the program sets itself, such as its parameters.

        ``where`` names the code in problems, such as ``the cell``.
        """
        futures = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
        postponed = any(alias.name == "annotations" for node in futures for alias in node.names)
        wanted = names.needs(tree, postponed=postponed)
        self._take(wanted.all, Place(tree, where, namespace, wanted.own | given, wanted.star), given)

    def root(self, name: str, function: Any) -> None:
        """Write out the function that the program calls. Raises nothing: see ``found.problems``."""
        if closed := advice.closure_of(inspect.unwrap(function)):
            self.found.problems.append(f"`{name}` {closed}")
        self.define(name, function)

    def define(self, name: str, value: Any) -> None:
        """Write out a function or class of the notebook under ``name``, and what it uses."""
        self._seen[name] = value
        try:
            source = self._cells.source_of(name, value)
        except NoSource as error:
            self.found.problems.append(f"`{name}` {error}")
            return
        self._check_definition(name, value, source)
        namespace = getattr(inspect.unwrap(value), "__globals__", None) or self._cells.namespace
        wanted = names.needs(source.tree, postponed=source.future_annotations)
        place = Place(source.tree, f"`{name}`", namespace, wanted.own, wanted.star)
        # What runs at once, such as a decorator, has to stand above the definition.
        self._take(wanted.now, place)
        self.found.definitions.append(source)
        self._take(wanted.later, place)

    def _check_definition(self, name: str, value: Any, source: Source) -> None:
        """Refuse a definition that would replace another object, or would lose its wrapper."""
        function = inspect.unwrap(value)
        own = function.__name__
        if own.isidentifier() and self._seen.setdefault(own, value) is not value:
            self.found.problems.append(
                f"`{name}` was defined as `{own}`, which means another object now. Give each of the two its own name."
            )
        if function is not value and not getattr(source.tree.body[0], "decorator_list", ()):
            self.found.problems.append(
                f"`{name}` was wrapped after its definition, and a job would not have the wrapper. Write it as a "
                "decorator above the definition."
            )

    def _take(self, wanted: Iterable[str], place: Place, given: frozenset[str] = frozenset()) -> None:
        for name in wanted:
            if name in given or name in _OF_MODULES:
                continue
            if name in place.namespace and name not in _OF_IPYTHON:
                self._name(name, place.namespace[name], place)
            elif name in _OF_IPYTHON:
                self._problem(name, place, "exists only in a notebook. Leave it out.")
            elif not hasattr(builtins, name) and not place.star and name not in place.own:
                self._problem(name, place, "is not defined there or in the notebook. Define it, or import it.")

    def _name(self, name: str, value: Any, place: Place) -> None:
        if name in self._seen:
            if self._seen[name] is not value:
                self._problem(name, place, "means another object there than elsewhere. Rename one of the two.")
            return
        self._seen[name] = value
        if isinstance(value, ModuleType):
            self.found.imports |= _imports_of(name, value, place.tree)
        elif statement := self._import_from(name, value):
            self.found.imports.add(statement)
        elif (constant := literals.source_of(value)) is not None:
            if len(constant) > literals.LONGEST:
                self._problem(name, place, advice.too_large(len(constant), literals.LONGEST))
            self.found.constants[name] = constant
        elif isinstance(value, type) or isinstance(inspect.unwrap(value), FunctionType):
            if closed := advice.closure_of(inspect.unwrap(value)):
                self._problem(name, place, closed)
                return
            self.define(name, value)
        else:
            self._problem(name, place, advice.of(value))

    def _import_from(self, name: str, value: Any) -> str:
        """Return the statement that imports an object of an installed module; empty if there is none."""
        # The functions of ``random`` are methods of an object; one of them does not name its module.
        owner = getattr(value, "__self__", None)
        modules = getattr(value, "__module__", None), None if owner is None else type(owner).__module__
        owns = getattr(value, "__qualname__", None), getattr(value, "__name__", None)
        for module, own in itertools.product(modules, owns):
            if not isinstance(module, str) or not isinstance(own, str) or module in self._home:
                continue
            if getattr(sys.modules.get(module), own, None) is value:
                return f"from {module} import {own}" + (f" as {name}" if name != own else "")
        return ""

    def _problem(self, name: str, place: Place, what: str) -> None:
        line = names.first_uses(place.tree).get(name, (0, 0))[0]
        self.found.problems.append(f"`{name}` (line {line} of {place.where}) {what}")


def _imports_of(name: str, module: ModuleType, tree: ast.Module) -> set[str]:
    """Return the statements that import a module, and those of its submodules that the code reads from it."""
    full = "os.path" if module is os.path else module.__name__
    if name != full.split(".")[0] or "." in full:
        parent, _, last = full.rpartition(".")
        if parent and getattr(sys.modules.get(parent), last, None) is module:
            return {f"from {parent} import {last}" + (f" as {name}" if name != last else "")}
        return {f"import {full}" + (f" as {name}" if name != full else "")}
    read = {".".join((full, *chain)) for chain in names.attribute_chains(tree, name)}
    below = {path for path in read if path in sys.modules}
    deepest = {path for path in below if not any(other.startswith(f"{path}.") for other in below)}
    return {f"import {path}" for path in deepest or {full}}
