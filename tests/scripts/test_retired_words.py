"""The check for retired words finds each use and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scripts import retired_words
from scripts.retired_words import places

WORDS = {"house": "portal", "data set": "dataset"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the house of a job", [(1, "house", "portal")]),
        ("The House,\nand a house", [(1, "house", "portal"), (2, "house", "portal")]),
        ("one data set", [(1, "data set", "dataset")]),
        ("reads the data\n    set of the job", [(1, "data set", "dataset")]),
        ("# reads the data\n# set of the job", [(1, "data set", "dataset")]),
        ("// reads the Data\n   * set of the job", [(1, "data set", "dataset")]),
    ],
)
def test_a_use_is_found_with_its_line_and_the_replacement(text: str, found: list[tuple[int, str, str]]) -> None:
    assert list(places(text, WORDS)) == found


@pytest.mark.parametrize(
    "text", ["houses", "warehouse", "house_on(cluster)", "the data\n\nset it", "metadata set", "data, set"]
)
def test_parts_of_other_words_and_of_identifiers_are_no_uses(text: str) -> None:
    assert list(places(text, WORDS)) == []


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Callable[[str], int]]:
    """Function that checks a tree with one file of this text."""
    monkeypatch.setattr(retired_words, "ROOT", tmp_path)
    monkeypatch.setattr(retired_words, "files", lambda excepted: iter([tmp_path / "a.py"]))

    def check(text: str) -> int:
        (tmp_path / "a.py").write_text(text)
        return retired_words.main()

    yield check


def test_a_use_is_printed_and_fails_the_check(main: Callable[[str], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main("x = 1\n# a house\n") == 1
    assert capsys.readouterr().out == "a.py:2: write portal, package or cleanup, not house\n"


def test_without_a_use_the_check_passes(main: Callable[[str], int]) -> None:
    assert main("x = 1\n") == 0


def test_no_file_of_the_project_has_a_retired_word() -> None:
    assert retired_words.main() == 0
