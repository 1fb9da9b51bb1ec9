"""The start of a notebook: what is laid out in its home, and the clone of a Git address."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import contract, notebook_start


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in ("home", "work", "tmp"):
        (tmp_path / name).mkdir()
    return {
        contract.NOTEBOOK_HOME: str(tmp_path / "home"),
        contract.WORK_DIR: str(tmp_path / "work"),
        contract.NOTEBOOK_FOLDER: "first",
        contract.AGENT_FD: "9",
        "PATH": "/usr/bin",
        "PYTHONPATH": "/platform",
    }


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Path:
    """The directory of the files that the notebook starts from."""
    directory = tmp_path / "work" / contract.NOTEBOOK_START
    (directory / "lib").mkdir(parents=True)
    (directory / "first.ipynb").write_text("{}")
    (directory / "lib" / "model.py").write_text("x = 1\n")
    return directory


@pytest.mark.usefixtures("start")
def test_files_of_the_start_are_laid_out_in_the_home(tmp_path: Path, environ: dict[str, str]) -> None:
    notebook_start.prepared(environ, tmp_path / "tmp")
    assert (tmp_path / "home" / "first" / "first.ipynb").read_text() == "{}"
    assert (tmp_path / "home" / "first" / "lib" / "model.py").read_text() == "x = 1\n"


@pytest.mark.invariant("A start of a notebook changes no file that is in its home.")
@pytest.mark.usefixtures("start")
def test_a_changed_file_stays_as_it_is(tmp_path: Path, environ: dict[str, str]) -> None:
    notebook_start.prepared(environ, tmp_path / "tmp")
    (tmp_path / "home" / "first" / "first.ipynb").write_text("mine")
    notebook_start.prepared(environ, tmp_path / "tmp")
    assert (tmp_path / "home" / "first" / "first.ipynb").read_text() == "mine"


def test_jupyter_finds_the_client_and_not_the_agent(tmp_path: Path, environ: dict[str, str]) -> None:
    found = notebook_start.prepared(environ, tmp_path / "tmp")
    assert contract.AGENT_FD not in found
    assert found["PYTHONPATH"] == f"/platform{os.pathsep}{tmp_path / 'work' / contract.NOTEBOOK_PACKAGES}"
    command = tmp_path / "tmp" / "bin" / "regatta"
    assert found["PATH"].startswith(str(command.parent))
    assert command.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    "address", ["http://example.com/a", "file:///etc", "/etc", "--upload-pack=id", "https://a:b@example.com/c"]
)
def test_other_addresses_are_not_cloned(tmp_path: Path, address: str) -> None:
    assert notebook_start.clone(address, tmp_path / "code") == contract.EXIT_ERROR
    assert not (tmp_path / "code").exists()


def test_an_existing_directory_is_not_cloned_again(tmp_path: Path) -> None:
    assert notebook_start.clone("https://127.0.0.1:1/code.git", tmp_path) == 0


@pytest.fixture
def agent(environ: dict[str, str]) -> Iterator[socket.socket]:
    """The agent's end of its link to the process."""
    ours, theirs = socket.socketpair()
    environ[contract.AGENT_FD] = str(theirs.detach())
    ours.settimeout(5)
    yield ours
    ours.close()


def test_the_agent_is_notified_once_jupyter_listens(
    tmp_path: Path, environ: dict[str, str], agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "tmp")  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as jupyter:
        jupyter.bind(contract.NOTEBOOK_SOCKET)
        jupyter.listen()
        assert notebook_start.attend(environ, Path(), lambda: False) == 0
    assert b'"op": "hello"' in agent.recv(1000)


def test_the_agent_is_not_notified_when_jupyter_has_ended(
    tmp_path: Path, environ: dict[str, str], agent: socket.socket
) -> None:
    assert notebook_start.attend(environ, tmp_path / "tmp", lambda: True) == contract.EXIT_ERROR
    os.close(int(environ[contract.AGENT_FD]))
    assert agent.recv(1000) == b""
