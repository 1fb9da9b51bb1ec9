"""Bundles and environments, with a real pip and a package made by the test."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from pytest_django import Settings

from jobs.builds import local_bundle
from jobs.frameworks.definitions import NATIVE
from jobs.launch import planner
from jobs.messages import cluster as messages
from tests.messages import mentions
from tests.ports import free_port
from tests.waiting import until

DIGEST = "d" * 64
FILES = {"train.py": "import tiny\n", "parts/a.py": "x = 1\n"}
pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _own_data(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "data"


def write_wheel(folder: Path, name: str) -> None:
    """Write version 1.0 of a package with one module, whose ``SIZE`` is 1."""
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "SIZE = 1\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")


@pytest.fixture
def packages_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the only source of packages for pip; it contains ``tiny`` 1.0."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    write_wheel(folder, "tiny")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def built(*requirements: str, framework: str = NATIVE) -> planner.BuildView:
    """Poll the build until it has a result."""
    views: list[planner.BuildView] = []

    def is_answered() -> bool:
        views.append(local_bundle.build(DIGEST, FILES, requirements, framework))
        return bool(views[-1].done or views[-1].problem)

    until("the installation ends", is_answered, 60, story=lambda: views[-1])
    return views[-1]


def installers() -> list[Path]:
    """Return the ``/proc`` entries of running installers of this test's data directory."""
    mark = str(local_bundle.environment_folder(("tiny",)).parent).encode()
    return [line for line in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(line)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_without_requirements_only_the_files_are_written() -> None:
    view = built()
    assert view.done is not None
    made = {path.relative_to(view.done.bundle).as_posix() for path in view.done.bundle.rglob("*.py")}
    assert made == set(FILES)


def test_requirements_and_the_platforms_packages_can_be_imported(packages_dir: Path) -> None:
    view = built("tiny==1.0")
    assert view.done is not None, view
    script = "import tiny, numpy; print(tiny.SIZE)"
    assert subprocess.check_output([view.done.python, "-c", script], text=True) == "1\n"


def test_a_framework_gets_only_the_platforms_packages_that_read_data(packages_dir: Path) -> None:
    write_wheel(packages_dir, "torch")
    view = built("torch==1.0", framework="torch")
    assert view.done is not None, view
    script = "import cramjam, google_crc32c, importlib.util; print(importlib.util.find_spec('numpy'))"
    assert subprocess.check_output([view.done.python, "-c", script], text=True) == "None\n"


def test_a_failed_installation_is_reported_with_pips_output_and_can_be_retried(packages_dir: Path) -> None:
    view = built("tiny==2.0")
    assert mentions(view.problem, messages.REQUIREMENTS_NOT_INSTALLED)
    assert "tiny==2.0" in view.problem
    assert any("tiny==2.0" in line for line in view.log)
    assert not local_bundle.environment_folder(("tiny==2.0",)).exists()


def test_an_index_that_does_not_answer_is_reported_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_port()}/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    view = built("tiny==2.0")
    assert view.problem == messages.PACKAGE_INDEX_UNREACHABLE(host="127.0.0.1")
    assert any("Connection refused" in line for line in view.log), "the whole output is in the log"


def test_the_portals_stop_ends_installations_and_its_next_start_begins_them_again(packages_dir: Path) -> None:
    local_bundle.build(DIGEST, FILES, ("tiny",))
    lock = local_bundle.environment_folder(("tiny",)) / "lock"
    until("somebody installs", lambda: lock.exists() and lock.read_text())
    local_bundle.end_all()
    until("no installer is left", lambda: not installers())
    assert built("tiny").done is not None
