"""The catalogues of messages, and the code that uses them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jobs.builds import pip_install
from jobs.builds.images import build_step
from jobs.messages import cluster
from portal.apps import CATALOGUES
from runtime.messages import Template, registered

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("jobs", "rbac", "quota", "datasets", "portal", "runtime")
GOLDEN = Path(__file__).with_name("golden_messages.txt")


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the platform with its path."""
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def catalogues_in(tree: ast.Module) -> dict[str, str]:
    """Return the catalogues that a module imports, by the name under which it uses them."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in CATALOGUES
    }


def uses(tree: ast.AST, catalogues: dict[str, str]) -> Iterator[ast.Attribute]:
    """Yield every use of an entry of a catalogue."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in catalogues:
            yield node


def test_each_entry_that_the_code_names_is_in_its_catalogue() -> None:
    missing = []
    for path, tree in modules():
        catalogues = catalogues_in(tree)
        for use in uses(tree, catalogues):
            assert isinstance(use.value, ast.Name)
            entry = getattr(importlib.import_module(catalogues[use.value.id]), use.attr, None)
            if entry is None:
                missing.append(f"{path}:{use.lineno} {use.attr}")
    assert missing == []


def test_each_call_of_an_entry_gives_the_parameters_of_its_text() -> None:
    wrong = []
    for path, tree in modules():
        catalogues = catalogues_in(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if call.func not in list(uses(call.func, catalogues)):
                continue
            assert isinstance(call.func, ast.Attribute)
            assert isinstance(call.func.value, ast.Name)
            entry = getattr(importlib.import_module(catalogues[call.func.value.id]), call.func.attr)
            given = {keyword.arg for keyword in call.keywords}
            if isinstance(entry, Template) and (call.args or given != entry.places):
                wrong.append(f"{path}:{call.lineno} {call.func.attr}({sorted(map(str, given))})")
    assert wrong == []


def test_no_message_is_formatted_into_a_text_which_would_lose_its_code() -> None:
    wrong = [
        f"{path}:{text.lineno}"
        for path, tree in modules()
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr) and list(uses(text, catalogues_in(tree)))
    ]
    assert wrong == []


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_each_entry_of_a_catalogue_is_used(catalogue: str) -> None:
    used = {
        use.attr
        for _, tree in modules()
        for use in uses(tree, {name: module for name, module in catalogues_in(tree).items() if module == catalogue})
    }
    defined = vars(importlib.import_module(catalogue))
    own = {node.id for node in ast.walk(_tree(catalogue)) if isinstance(node, ast.Name)}
    entries = {name for name, entry in defined.items() if isinstance(entry, Template) and name.isupper()}
    in_functions = {name for name in own if _is_read(catalogue, name)}
    elsewhere = {code.upper() for code in (*build_step.MESSAGES, *pip_install.MESSAGES)}
    assert sorted(entries - used - in_functions - elsewhere) == []


@pytest.mark.parametrize("program", [build_step, pip_install])
def test_programs_that_run_without_the_catalogues_have_their_texts(program: ModuleType) -> None:
    assert {code: getattr(cluster, code.upper()).text for code in program.MESSAGES} == dict(program.MESSAGES)


def _tree(catalogue: str) -> ast.Module:
    source = importlib.import_module(catalogue).__file__
    assert source is not None
    return ast.parse(Path(source).read_text(encoding="utf-8"))


def _is_read(catalogue: str, name: str) -> bool:
    """Return whether functions of the catalogue itself use the entry."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(_tree(catalogue))
    )


def test_the_wording_is_that_of_the_golden_file() -> None:
    """After a change of wording, run ``python -m tests.portal.common.golden_messages``, and look at the difference."""
    assert GOLDEN.read_text(encoding="utf-8").splitlines() == golden_lines()


def golden_lines() -> list[str]:
    for catalogue in CATALOGUES:
        importlib.import_module(catalogue)
    return [f"{code}: {template.text}" for code, template in sorted(registered().items())]
