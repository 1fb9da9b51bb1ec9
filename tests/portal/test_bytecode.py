from __future__ import annotations

from pathlib import Path

import pytest

from portal.bytecode import compile_in_background

pytestmark = pytest.mark.processes


def test_modules_of_jobs_are_compiled_in_any_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "module.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x =\n")
    process = compile_in_background(tmp_path)
    assert process.wait(30) == 0
    assert [path.name.split(".")[0] for path in tmp_path.rglob("*.pyc")] == ["module"]


def test_a_package_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    # Root cannot make a directory in the place of a file either.
    (tmp_path / "__pycache__").write_bytes(b"")
    assert compile_in_background(tmp_path).wait(30) == 0
