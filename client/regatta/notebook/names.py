"""Global names that Python code needs from outside, found without running it."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Needs:
    """Names in the order of their first use.

    ``now``: read while the code itself runs. ``later``: read only inside functions, when these are called.
    ``star``: the code contains ``import *``, so any other name may come from there. ``own``: names that may be missing
    outside: functions bind them by ``global``, or only annotations that are not evaluated have them.
    """

    now: tuple[str, ...]
    later: tuple[str, ...]
    star: bool = False
    own: frozenset[str] = frozenset()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.now, *self.later)


def needs(tree: ast.Module, *, postponed: bool = False) -> Needs:
    """Return the names that a module reads and does not bind before. ``postponed``: annotations are not evaluated."""
    top = _TopLevel()
    top.run(tree.body)
    inside = [symbol for child in _table(tree).get_children() for symbol in _global_symbols(child)]
    inner = {symbol.get_name() for symbol in inside if symbol.is_referenced()} - _bound_anywhere(tree)
    own = frozenset(symbol.get_name() for symbol in inside if symbol.is_assigned())
    if postponed:
        evaluated = _TopLevel(annotations=False)
        evaluated.run(tree.body)
        own |= top.needed - evaluated.needed - inner
    places = first_uses(tree)
    now = sorted(top.needed, key=places.__getitem__)
    later = sorted(inner - top.needed, key=lambda name: places.get(name, (0, 0)))
    return Needs(tuple(now), tuple(later), any(_is_star(node) for node in ast.walk(tree)), own)


def first_uses(tree: ast.AST) -> dict[str, tuple[int, int]]:
    """Return the line and column at which each name occurs first."""
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            place = node.lineno, node.col_offset
            found[node.id] = min(place, found.get(node.id, place))
    return found


def bound(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds."""
    return _bound_anywhere(ast.Module([statement], []))


def attribute_chains(tree: ast.AST, name: str) -> Iterator[tuple[str, ...]]:
    """Yield the attributes that are read from a name, also in part: ``("etree",)`` and ``("etree", "ElementTree")`` of
    ``xml.etree.ElementTree``."""
    for node in ast.walk(tree):
        chain: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if chain and isinstance(inner, ast.Name) and inner.id == name:
            yield tuple(reversed(chain))


def is_import_of(node: ast.AST, package: str) -> bool:
    """Return whether a statement imports a package or something from it."""
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
    return package in {module.split(".")[0] for module in modules}


def _is_star(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _table(tree: ast.Module) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(tree), "<code>", "exec")


def _bound_anywhere(tree: ast.Module) -> set[str]:
    symbols = _table(tree).get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported() or each.is_namespace()}


def _global_symbols(table: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    """Yield the global names of a function, class or comprehension and of all inside it."""
    yield from (symbol for symbol in table.get_symbols() if symbol.is_global())
    for child in table.get_children():
        yield from _global_symbols(child)


class _TopLevel(ast.NodeVisitor):
    """Visits the top level in the order of evaluation. Bodies of functions do not run there, and are left out."""

    def __init__(self, *, annotations: bool = True) -> None:
        self.bound: set[str] = set()
        self.needed: set[str] = set()
        self._annotations = annotations

    def run(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif node.id not in self.bound:
            self.needed.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.run([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        if node.value is not None:
            self.run([node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.Name(node.target.id, ast.Load()))
        self.run([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.run([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.run([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.run([node.type])
        self.bound |= {node.name} if node.name else set()
        self.run(node.body)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.bound |= {node.name} if node.name else set()
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.bound |= {node.rest} if node.rest else set()
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.run(node.decorator_list)
        self._signature(node)
        self._annotation(node.returns)
        self.bound.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._signature(node)

    def _signature(self, node: _Function) -> None:
        arguments = node.args
        self.run([*arguments.defaults, *arguments.kw_defaults])
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for each in every:
            self._annotation(each.annotation if each is not None else None)

    def _annotation(self, node: ast.expr | None) -> None:
        if self._annotations:
            self.run([node])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.run([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        body = _TopLevel(annotations=self._annotations)
        body.bound |= self.bound
        body.run(node.body)
        self.needed |= body.needed
        self.bound.add(node.name)

    def _comprehension(self, node: ast.AST) -> None:
        inner = _TopLevel()
        inner.bound |= self.bound
        for generator in getattr(node, "generators", ()):
            inner.run([generator.iter, generator.target, *generator.ifs])
        inner.run(getattr(node, field, None) for field in ("key", "value", "elt"))
        self.needed |= inner.needed
        self.bound |= {one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr)}

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension
