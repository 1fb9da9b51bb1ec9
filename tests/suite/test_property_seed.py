"""Property tests try the same examples in each run of one commit, and a run prints how to repeat it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROPERTY = """
import os
from hypothesis import given, strategies as st

@given(st.integers())
def test_it(number):
    with open(os.environ["SEEN"], "a") as file:
        print(number, file=file)
"""


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    path = tmp_path / "test_it.py"
    path.write_text(PROPERTY)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_sessionstart\n")
    return path


def run(test_file: Path, name: str, *options: str, profile: str = "ci") -> tuple[str, str]:
    """Return the output of a run, and its examples."""
    seen = test_file.parent / name
    # If CI is set, Hypothesis draws its examples from the test's code alone, whatever the seed.
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = {**inherited, "SEEN": str(seen), "HYPOTHESIS_PROFILE": profile}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += [f"--rootdir={ROOT}", str(test_file), *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, seen.read_text()


@pytest.mark.processes
def test_two_runs_of_one_commit_try_the_same_examples(test_file: Path) -> None:
    one, other = (run(test_file, name)[1] for name in ("one", "other"))
    assert one == other
    assert len(one.splitlines()) >= 100


@pytest.mark.processes
def test_a_run_prints_its_seed(test_file: Path) -> None:
    printed, examples = run(test_file, "one", "--hypothesis-seed=7")
    assert "Hypothesis: profile ci, seed 7 (repeat: HYPOTHESIS_PROFILE=ci --hypothesis-seed=7)" in printed
    assert examples != run(test_file, "other")[1]
