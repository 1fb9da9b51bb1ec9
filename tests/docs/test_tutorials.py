"""The tutorials in the repository: five notebooks without outputs. tests/end_to_end/test_notebooks.py runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def test_there_are_five_and_the_page_lists_each() -> None:
    page = (TUTORIALS / "README.md").read_text()
    assert [file.name for file in NOTEBOOKS if f"({file.name})" in page] == [file.name for file in NOTEBOOKS]
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_outputs_are_stripped(file: Path) -> None:
    """To strip them: .venv/bin/python scripts/strip_notebooks.py"""
    cells = json.loads(file.read_text())["cells"]
    assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
