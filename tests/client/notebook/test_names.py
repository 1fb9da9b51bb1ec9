"""Names that code needs from outside, compared with what Python looks up when it runs the code."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.notebook.names import needs

CASES = {
    "print(a)": ["print", "a"],
    "a = 1\nprint(a)": ["print"],
    "a += 1": ["a"],
    "a = a": ["a"],
    "for i in range(n):\n    t = t + i": ["range", "n", "t"],
    "def f(x=d):\n    return x + g": ["d", "g"],
    "def f(x: T) -> U: ...": ["T", "U"],
    "@deco\ndef f(): ...": ["deco"],
    "class A(B):\n    x = c\n    y = x": ["B", "c"],
    "[x + y for x in z if w]": ["y", "z", "w"],
    "lambda x, y=d: x + y + e": ["d", "e"],
    "def f():\n    a = 1\n    def g():\n        return a + b\n    return g": ["b"],
    "import os.path\nos": [],
    "from m import n as k\nk": [],
    "try:\n    pass\nexcept E as e:\n    e": ["E"],
    "with open(p) as f:\n    f": ["open", "p"],
    "match v:\n    case [a, *b]:\n        a, b": ["v"],
    "match v:\n    case {'k': a, **rest}:\n        a, rest": ["v"],
    "if (m := get()):\n    m": ["get"],
    "def f():\n    return later\nlater = 1": [],
    "f'{a!r:{b}}'": ["a", "b"],
}


@pytest.mark.parametrize("code", CASES)
def test_needed_names(code: str) -> None:
    assert sorted(needs(ast.parse(code)).all) == sorted(CASES[code])


def test_names_are_in_the_order_of_their_first_use() -> None:
    assert needs(ast.parse("c = z\nd = a + m\ndef f():\n    return k + b")).all == ("z", "a", "m", "k", "b")


def test_what_runs_at_once_is_apart_from_what_a_function_reads_later() -> None:
    found = needs(ast.parse("@deco\ndef f(x=default):\n    return x + constant"))
    assert (found.now, found.later) == (("deco", "default"), ("constant",))


def test_a_name_that_a_function_binds_globally_is_known_as_its_own() -> None:
    assert "count" in needs(ast.parse("def f():\n    global count\n    count = 1\nf()\ncount")).own


def test_an_import_of_everything_is_noticed() -> None:
    assert needs(ast.parse("from numpy import *\nzeros(3)")).star


class Recorder(dict[str, Any]):
    """Namespace that records the names that Python looks up in it and does not find."""

    def __init__(self) -> None:
        super().__init__(__builtins__={})
        self.missing: set[str] = set()

    def __missing__(self, name: str) -> int:
        self.missing.add(name)
        return 1


NAMES = st.sampled_from("abcd")
STATEMENTS = st.one_of(
    st.builds("{} = {} + {}".format, NAMES, NAMES, NAMES),
    st.builds("{} += {}".format, NAMES, NAMES),
    st.builds("{} if {} else {}".format, NAMES, NAMES, NAMES),
    st.builds("{} = {} and {}".format, NAMES, NAMES, NAMES),
    st.builds("({} := {}) + {}".format, NAMES, NAMES, NAMES),
)


@given(st.lists(STATEMENTS, min_size=1, max_size=8))
def test_every_name_that_python_misses_is_found(statements: list[str]) -> None:
    code = "\n".join(statements)
    namespace = Recorder()
    exec(compile(code, "<code>", "exec"), {"__builtins__": {}}, namespace)
    assert namespace.missing <= set(needs(ast.parse(code)).all)
