"""Syntax check of files, with its cache."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from jobs.spec import syntax_check
from jobs.spec.syntax_check import syntax_problems


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the calls that started an interpreter."""
    started: list[Any] = []
    run = subprocess.run

    def counted(*arguments: Any, **options: Any) -> Any:
        started.append(arguments)
        return run(*arguments, **options)

    monkeypatch.setattr(syntax_check.subprocess, "run", counted)
    monkeypatch.setattr(syntax_check, "_CLEAN", syntax_check._Clean(most=2))
    return started


def test_the_same_clean_text_is_parsed_once(parsers: list[Any]) -> None:
    assert [syntax_problems({name: "x = 1\n"}) for name in ("a.py", "b.py")] == [{}, {}]
    assert len(parsers) == 1


def test_a_problem_is_found_each_time(parsers: list[Any]) -> None:
    files = {"good.py": "x = 1\n", "bad.py": "x = = 1\n"}
    assert [set(syntax_problems(files)) for _ in range(2)] == [{"bad.py"}, {"bad.py"}]
    assert len(parsers) == 2


def test_only_the_last_texts_are_remembered(parsers: list[Any]) -> None:
    for number in (1, 2, 3, 3, 1):
        syntax_problems({"a.py": f"x = {number}\n"})
    assert len(parsers) == 4
