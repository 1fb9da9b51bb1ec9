"""Print the test files that a change can affect: ``python scripts/test_near.py [--base main]``.

The change is the difference of the working tree, with its new files, from where the branch left the base. A changed
module affects itself and all modules that import it, directly or not. A test file is affected

- if it is in the folder that mirrors the package of an affected module: ``tests/quota`` for ``quota.ledger``;
- if it imports an affected module, itself or through another module of the tests;
- if it is changed, or imports a changed module of the tests, or is below a changed ``conftest.py``.

A migration, and a file of a package that is no module, such as a template, affects all tests of its top package and
those of the portal, which include pages and databases. A change of which nothing is known, such as one of the
requirements, affects all tests: ``tests``. What ``tests/conftest.py`` imports of the packages counts for no test: its
fixtures make rows for tests of other packages.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("portal", "rbac", "quota", "datasets", "jobs", "runtime", "regatta", "bench")
# Packages that are not in the root of the checkout.
SOURCES = {"regatta": "client/regatta"}
MIRRORS = {"regatta": "client"}
# Files outside the packages that only the tests of one folder read.
FOLDERS = {"docs": "tests/docs", "scripts": "tests/scripts", "README.md": "tests/docs", "CHANGELOG.md": "tests/docs"}
ALL = "tests"
# Read by the pages, or by the processes, of every package.
COMMON = ("portal/settings.py", "portal/templates", "portal/static", "portal/locale", "tests/settings.py")


@dataclass(frozen=True)
class Suite:
    """The test files, and for every file of the tests the names of the modules that it imports, directly or not."""

    imports: Mapping[PurePosixPath, frozenset[str]]

    @property
    def files(self) -> list[PurePosixPath]:
        return sorted(path for path in self.imports if path.name.startswith("test_"))

    def below(self, folder: str) -> set[PurePosixPath]:
        return {path for path in self.files if path.is_relative_to(folder)}

    def directly_in(self, folder: PurePosixPath) -> set[PurePosixPath]:
        return {path for path in self.files if path.parent == folder}

    def importing(self, modules: Iterable[str]) -> set[PurePosixPath]:
        wanted = frozenset(modules)
        return {path for path in self.files if self.imports[path] & wanted}


def changed(root: Path, base: str) -> list[PurePosixPath]:
    """Return the files that differ from where the branch left ``base``, also deleted and untracked ones."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.split("\0")

    start = lines("merge-base", base, "HEAD")[0].strip()
    names = lines("diff", "--name-only", "--no-renames", "-z", start)
    names += lines("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({PurePosixPath(name) for name in names if name})


def read_tests(root: Path) -> Suite:
    """Return the tests below ``root``, without importing them."""
    files = {PurePosixPath(path.relative_to(root).as_posix()): path for path in (root / ALL).rglob("*.py")}
    direct = {name: set(imported_names(path.read_text(encoding="utf-8"))) for name, path in files.items()}
    modules = {module_of(name): name for name in files}

    def reached(start: PurePosixPath) -> frozenset[str]:
        found: set[str] = set()
        # A conftest.py is used without an import.
        waiting = [start, *(folder / "conftest.py" for folder in start.parents if folder != PurePosixPath(ALL))]
        while waiting:
            for name in direct.get(waiting.pop(), set()) - found:
                found.add(name)
                if name in modules:
                    waiting.append(modules[name])
        return frozenset(found)

    common = {name for name in reached(PurePosixPath(ALL) / "conftest.py") if name in modules}
    return Suite({name: reached(name) | common for name in files})


def imported_names(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports; for ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def module_of(path: PurePosixPath) -> str:
    """Return the dotted name of a Python file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def affected(paths: Iterable[PurePosixPath], graph: grimp.ImportGraph, tests: Suite) -> list[str]:
    """Return the test files that a change of these files affects, or ``[ALL]``."""
    found: set[PurePosixPath] = set()
    modules: set[str] = set()
    for path in paths:
        package = package_of(path)
        if str(path).startswith(COMMON):
            return [ALL]
        if path.is_relative_to(ALL):
            found |= affected_by_test(path, tests)
        elif package and path.suffix == ".py" and "migrations" not in path.parts:
            inside = path.relative_to(SOURCES.get(package, package))
            modules.add(module_of(PurePosixPath(package) / inside))
        elif package:
            found |= tests.below(str(PurePosixPath(ALL) / MIRRORS.get(package, package))) | tests.below("tests/portal")
        elif folder := next((FOLDERS[part] for part in FOLDERS if path.is_relative_to(part)), None):
            found |= tests.below(folder)
        else:
            return [ALL]
    for module in frozenset(modules):
        if module in graph.modules:
            modules |= graph.find_downstream_modules(module)
    for module in modules:
        found |= mirrored(module, tests)
    found |= tests.importing(modules)
    return sorted(map(str, found))


def package_of(path: PurePosixPath) -> str:
    """Return the top package that a file belongs to; empty if to none."""
    return next((name for name in PACKAGES if path.is_relative_to(SOURCES.get(name, name))), "")


def affected_by_test(path: PurePosixPath, tests: Suite) -> set[PurePosixPath]:
    """Return the test files that a changed file of the tests affects."""
    if path.name == "conftest.py" or path.suffix != ".py":
        return tests.below(str(path.parent))
    return tests.importing([module_of(path)]) | ({path} & set(tests.files))


def mirrored(module: str, tests: Suite) -> set[PurePosixPath]:
    """Return the test files of a module's package: those in the folder that mirrors it, else in the nearest above."""
    package, *inside = module.split(".")
    name = PurePosixPath(MIRRORS.get(package, package), *inside)
    for folder in (name, *name.parents[:-1]):
        if files := tests.directly_in(PurePosixPath(ALL) / folder):
            return files
    return set()


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the test files that a change can affect.")
    parser.add_argument("--base", default="main", help="the branch with which to compare")
    base = parser.parse_args().base
    sys.path[:0] = [str(ROOT), str(ROOT / "client")]
    graph = grimp.build_graph(*PACKAGES, cache_dir=str(ROOT / ".import_linter_cache"))
    print("\n".join(affected(changed(ROOT, base), graph, read_tests(ROOT))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
