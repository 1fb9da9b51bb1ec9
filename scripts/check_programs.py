"""Check that every program that the tests call is installed by the project.

A program must be named in scripts/system_packages.sh, or be part of a Debian with python3, python3-venv, git and make.

The check finds the first words of commands for ``subprocess`` and arguments of ``shutil.which``, also through variables
of the same file, and the commands of shell scripts.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In each Debian (packages that are essential or required), or installed with python3, git and make.
BASE = frozenset(
    (
        *("awk", "bash", "cat", "chmod", "cp", "date", "dd", "df", "echo", "env", "expr", "false", "find", "grep"),
        *(
            "gzip",
            "head",
            "id",
            "kill",
            "ldconfig",
            "ldd",
            "ln",
            "ls",
            "mkdir",
            "mount",
            "mv",
            "nice",
            "perl",
            "printf",
            "ps",
        ),
        *("pwd", "rm", "sed", "setsid", "sh", "sleep", "sort", "stat", "tail", "tar", "test", "timeout", "touch", "tr"),
        *("true", "umount", "uname", "unshare", "wc", "xargs"),
        *("git", "make", "python3"),
    )
)
# Not from Debian: provided with the cluster and named by KUBECTL.
GIVEN = frozenset({"kubectl"})
_TABLE = re.compile(r"command_of=\((?P<entries>[^)]*)\)")
_ENTRY = re.compile(r"\[[^]]+\]=(?P<commands>\"[^\"]*\"|\S+)")
_CALLS = frozenset({"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "which"})
_MODULES = frozenset({"subprocess", "asyncio", "shutil"})
_WORD = re.compile(r"[a-z][a-z0-9_.+-]*")
# Where a command begins in a shell script: at the start of a line, after ; | && ( $( do then.
_COMMAND = re.compile(
    r"(?:^|[;|(]|&&|\bdo|\bthen|\belse)[ \t]*(?:[A-Za-z_]+=\$\(|\$\()?[ \t]*([a-z][a-z0-9_.-]*)", re.M
)


def named(script: str) -> frozenset[str]:
    """Return the programs of the packages in the table of system_packages.sh."""
    table = _TABLE.search(script)
    entries = _ENTRY.findall(table["entries"]) if table else []
    return frozenset(command for entry in entries for command in entry.strip('"').split())


def called(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each program that a file calls."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        for match in _COMMAND.finditer(text):
            yield text.count("\n", 0, match.start(1)) + 1, match[1]
        return
    tree = ast.parse(text)
    values = _values(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _starts_a_program(node.func):
            for word in _first_words(node.args[0], values, every=_name_of(node.func) == "which"):
                if _WORD.fullmatch(word):
                    yield node.lineno, word


def _starts_a_program(function: ast.expr) -> bool:
    of = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id in _MODULES and _name_of(function) in _CALLS


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _values(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the expressions assigned to each variable of a file, including by loops."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(_name_of(target), []).append(node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            found.setdefault(_name_of(node.target), []).append(node.iter)
    return found


def _first_words(node: ast.expr, values: dict[str, list[ast.expr]], *, every: bool, depth: int = 4) -> Iterator[str]:
    """Yield the first words of a command. ``every``: all items of a list count, because it is looped over."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from node.value.split()[:1]
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts if every else node.elts[:1]:
            yield from _first_words(element, values, every=every, depth=depth)
    elif isinstance(node, ast.Starred):
        yield from _first_words(node.value, values, every=every, depth=depth)
    elif isinstance(node, ast.Call) and _name_of(node.func) == "split" and isinstance(node.func, ast.Attribute):
        yield from _first_words(node.func.value, values, every=every, depth=depth)
    elif isinstance(node, ast.JoinedStr) and node.values:
        yield from _first_words(node.values[0], values, every=every, depth=depth)
    elif depth and isinstance(node, ast.Name | ast.Attribute):
        for value in values.get(_name_of(node), []):
            yield from _first_words(value, values, every=every, depth=depth - 1)


def unnamed(root: Path) -> Iterator[str]:
    """Yield a message for each program of this machine that the tests call and the project does not install."""
    known = named((root / "scripts" / "system_packages.sh").read_text(encoding="utf-8")) | BASE | GIVEN
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix not in (".py", ".sh"):
            continue
        for line, word in called(path):
            if word not in known and shutil.which(word) is not None:
                yield (
                    f"{path.relative_to(root)}:{line} calls {word}, which nothing installs. Name its package in "
                    "scripts/system_packages.sh and in the Makefile's target that runs this test."
                )


def main() -> int:
    problems = list(dict.fromkeys(unnamed(ROOT)))
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
