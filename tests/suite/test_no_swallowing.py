"""No test ignores a failed assertion."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Waits until a job has ended or a timeout; the assertion about its end follows.
ALLOWED = ("faults/test_etcd_faults.py",)
_WIDE = ("AssertionError", "Exception", "BaseException")


def swallowed(text: str) -> list[int]:
    """Return lines of ``suppress(AssertionError)``, and of handlers of it that do nothing. Base classes count too."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
            found += [node.lineno for one in node.args if ast.unparse(one) in _WIDE]
        if isinstance(node, ast.ExceptHandler) and all(isinstance(one, ast.Pass) for one in node.body):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            found += [node.lineno for one in kinds if one is None or ast.unparse(one) in _WIDE]
    return found


def test_no_test_swallows_a_failed_assertion() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).as_posix() not in ALLOWED and (lines := swallowed(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_each_way_to_swallow_is_found() -> None:
    assert swallowed("with contextlib.suppress(AssertionError):\n    assert x\n") == [1]
    assert swallowed("with suppress(OSError, Exception):\n    assert x\n") == [1]
    assert swallowed("try:\n    assert x\nexcept (OSError, AssertionError):\n    pass\n") == [3]
    assert swallowed("try:\n    assert x\nexcept:\n    pass\n") == [3]
    assert swallowed("with suppress(OSError):\n    assert x\n") == []
