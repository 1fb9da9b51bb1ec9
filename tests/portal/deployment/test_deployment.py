"""The settings recommended to operators, checked by Django's own checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def recommended(directory: Path) -> dict[str, str]:
    """Return the environment of deploy/production.env, with another data directory and no other variable of the
    portal."""
    lines = (ROOT / "deploy" / "production.env").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    return {**inherited, **settings, "REGATTA_DATA_DIR": str(directory)}


def test_django_finds_nothing_to_warn_of_in_the_recommended_settings(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(
        command, cwd=ROOT, env=recommended(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout
