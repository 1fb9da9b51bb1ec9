"""docs/commands.md matches the command."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_made_from_the_command_as_it_is() -> None:
    """To update the page: .venv/bin/python scripts/command_reference.py"""
    made = runpy.run_path(str(ROOT / "scripts" / "command_reference.py"))["reference"]()
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == made
