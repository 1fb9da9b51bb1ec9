"""The portal's files are unreadable for other accounts of the machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as portal_settings

from portal.preflight import lock_data_directory
from portal.private_files import check_modes, open_to_others, repair


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of an earlier version, open to all."""
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(0o755)
    for name in ("secret-key", "regatta.sqlite3", "regatta.sqlite3-wal"):
        (directory / name).touch()
        (directory / name).chmod(0o644)
    return directory


def test_the_start_makes_the_data_directory_private(tmp_path: Path) -> None:
    directory = tmp_path / "fresh" / "data"
    lock_data_directory(directory).close()
    assert mode_of(directory) == 0o700


def test_the_start_repairs_open_modes(data: Path) -> None:
    lock_data_directory(data).close()
    assert mode_of(data) == 0o700
    assert {mode_of(data / name) for name in ("secret-key", "regatta.sqlite3", "regatta.sqlite3-wal")} == {0o600}
    assert not list(open_to_others(data))


def test_unchangeable_modes_do_not_prevent_the_start(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    repair(data)
    assert (data, 0o755) in list(open_to_others(data))


def test_the_check_names_each_path_and_what_to_do(data: Path, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = data.parent / "production.env"
    environment.touch()
    environment.chmod(0o644)
    monkeypatch.setenv("REGATTA_ENVIRONMENT_FILE", str(environment))
    settings.DATA_DIR = data
    found = {each.msg.partition(" ")[0]: each.hint for each in check_modes(None)}
    names = ("", "secret-key", "regatta.sqlite3", "regatta.sqlite3-wal")
    assert set(found) == {str(environment), *(str(data / name) if name else str(data) for name in names)}
    assert found[str(environment)] == f"Run chmod 600 {environment}"


def test_a_private_directory_warns_of_nothing(data: Path, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_ENVIRONMENT_FILE", str(data / "none"))
    settings.DATA_DIR = data
    repair(data)
    assert check_modes(None) == []


def test_files_of_commands_are_private(tmp_path: Path) -> None:
    """Also with the usual umask of a shell."""
    directory = tmp_path / "data"
    environment = {**os.environ, "REGATTA_DATA_DIR": str(directory), "DJANGO_SETTINGS_MODULE": "portal.settings"}
    command = [sys.executable, str(portal_settings.BASE_DIR / "manage.py"), "shell", "-c"]
    script = "from pathlib import Path; Path(settings.DATA_DIR, 'x').touch(); Path(settings.DATA_DIR, 'y').mkdir()"
    script = f"from django.conf import settings; {script}"
    subprocess.run([*command, script], env=environment, check=True, umask=0o022, capture_output=True)
    assert (mode_of(directory), mode_of(directory / "x"), mode_of(directory / "y")) == (0o700, 0o600, 0o700)


@pytest.mark.parametrize(("backend", "expected"), [("local", "closed"), ("kubernetes", "open")])
def test_strangers_open_no_account_where_jobs_run_on_this_machine(tmp_path: Path, backend: str, expected: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("REGATTA_", "DJANGO_"))}
    environment |= {"REGATTA_DATA_DIR": str(tmp_path), "REGATTA_BACKEND": backend}
    command = [sys.executable, "-c", "from portal.settings import SIGN_UP; print(SIGN_UP)"]
    process = subprocess.run(
        command, env=environment, cwd=portal_settings.BASE_DIR, check=True, capture_output=True, text=True
    )
    assert process.stdout.strip() == expected
