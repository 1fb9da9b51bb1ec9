"""`make bench` in a fresh clone.

It has the packages of its requirements, no PYTHONPATH, no build/, and nothing installed of the checkout itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed state of this checkout, with an environment that has this one's packages.

    A path in a file of site-packages is followed, but not the files of that name behind it: editable installations,
    such as that of the client for developers, are not there.
    """
    folder = tmp_path_factory.mktemp("clone") / "regatta"
    subprocess.run(["git", "clone", "--quiet", "--local", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (folder / ".venv/lib" / packages.parent.name / "site-packages/packages.pth").write_text(f"{packages}\n")
    return folder


def measure(clone: Path, *rows: str) -> dict[str, list[dict[str, object]]]:
    """Return the results of a quick run of these rows, by letter."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {
        name: value for name, value in kept.items() if not name.startswith(("REGATTA_", "DJANGO_", "BENCH_"))
    }
    command = [".venv/bin/python", "-m", "bench", "--quick", *rows]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {path.stem: json.loads(path.read_text()) for path in (clone / "build/bench/quick").glob("?.json")}
    assert all(not row["note"].startswith(("ModuleNotFound", "FileNotFound")) for of in found.values() for row in of), (
        done.stderr[-2000:]
    )
    return found


def test_the_command_imports_nothing_of_a_letter_that_was_not_requested(clone: Path) -> None:
    script = (
        "import sys\n"
        "from bench import __main__\n"
        "heavy = ('django', 'numpy', 'regatta', 'tests', 'jobs')\n"
        "print([name for name in sys.modules if name.split('.')[0] in heavy])\n"
    )
    done = subprocess.run([".venv/bin/python", "-c", script], cwd=clone, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_client_of_the_clone_is_found_without_being_installed(clone: Path) -> None:
    script = "import os, sys\nfrom bench import runner\nprint(runner.environment()['PYTHONPATH'])"
    done = subprocess.run([".venv/bin/python", "-c", script], cwd=clone, capture_output=True, text=True, check=True)
    environment = {**os.environ, "PYTHONPATH": done.stdout.strip()}
    command = [str(clone / ".venv/bin/python"), "-c", "import regatta; print(regatta.__file__)"]
    answer = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert Path(answer.stdout.strip()).is_relative_to(clone), answer.stderr


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_row_that_needs_the_folder_build_is_measured_without_one(clone: Path) -> None:
    subprocess.run(["rm", "-rf", "build"], cwd=clone, check=True)
    rows = [row for row in measure(clone, "R8")["R"] if row["case"].startswith("tasks/s over the wire, embedded")]
    assert [row["value"] is not None and row["value"] > 0 for row in rows] == [True]


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_row_that_uses_the_client_and_a_portal_is_measured(clone: Path) -> None:
    rows = [row for row in measure(clone, "D3")["D"] if row["row"] == "D3"]
    assert rows
    assert all(row["value"] is not None and row["value"] > 0 for row in rows)


def test_no_module_of_the_bench_needs_the_tests() -> None:
    """The product's requirements are enough for it."""
    for path in (ROOT / "bench").glob("*.py"):
        assert "import tests" not in path.read_text(), path.name
        assert "from tests" not in path.read_text(), path.name
