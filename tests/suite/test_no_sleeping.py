"""No test sleeps for a fixed time: it waits for a condition (``tests/waiting.py``)."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
HOSTILE = ("blind", "bomb", "disk", "memory")
# The module that waits for conditions; and programs under test: a training script, whose steps take time, and hostile
# ones, which hold on to resources.
ALLOWED = ("waiting.py", "faults/workloads.py", *(f"runtime/agent/hostile/{name}.py" for name in HOSTILE))


def sleeps(path: Path) -> list[int]:
    """Return lines that use ``time.sleep`` or ``asyncio.sleep``, except ``asyncio.sleep(0)``, which yields to other
    tasks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yielding = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and [ast.unparse(one) for one in node.args] == ["0"]
    }
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "sleep"]
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in _MODULES]
    return [
        *(node.lineno for node in used if ast.unparse(node.value) in _MODULES and id(node) not in yielding),
        *(node.lineno for node in imported if any(name.name == "sleep" for name in node.names)),
    ]


_MODULES = ("time", "asyncio")


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).as_posix() not in ALLOWED and (lines := sleeps(path))
    }
    assert found == {}


def test_each_way_to_sleep_is_found(tmp_path: Path) -> None:
    file = tmp_path / "test_a.py"
    file.write_text("import time\nfrom time import sleep\ntime.sleep(1)\nawait_ = asyncio.sleep(0)\nf(time.sleep)\n")
    assert sorted(sleeps(file)) == [2, 3, 5]
