"""The commit with which results are labelled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import about


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: a module, a stored result, the page."""
    monkeypatch.chdir(tmp_path)
    for name in ("module.py", "bench/results/parts/steps.json", "docs/benchmarks.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\n")
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
    for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "First"]):
        subprocess.run(["git", *command], check=True)
    return tmp_path


def test_results_of_an_earlier_measurement_are_not_a_change_of_the_commit(checkout: Path) -> None:
    clean = about.commit()
    (checkout / "bench/results/parts/steps.json").write_text("second\n")
    (checkout / "docs/benchmarks.md").write_text("second\n")
    assert (len(clean), about.commit()) == (12, clean)


def test_a_changed_module_is_marked(checkout: Path) -> None:
    clean = about.commit()
    (checkout / "module.py").write_text("second\n")
    assert about.commit() == f"{clean}+"


def test_a_package_is_found_however_its_distribution_writes_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about.peers, "PYTHON", "/")
    monkeypatch.setattr(about.peers, "PACKAGES", ("array_record", "mosaicml-streaming", "torch"))
    monkeypatch.setattr(about, "_output", lambda *_: '{"array_record": "1", "mosaicml_streaming": "2"}')
    assert about._packages() == {"array_record": "1", "mosaicml-streaming": "2", "torch": "missing"}
