"""``regatta cp``: archives of a replica are hostile input. The command of the replica runs on this machine."""

from __future__ import annotations

import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from regatta.commands.copy import Refusal, Remote, fetch, send
from regatta.exec_socket import ConnectionLost, ExecSocket
from regatta.terminal.progress import Lines


class LocalReplica:
    """Runs the command here, or sends an archive instead of its output."""

    def __init__(self, archive: bytes = b"") -> None:
        self._archive, self._input = archive, b""
        self._command: list[str] = []
        self._ended = threading.Event()
        self._is_closed = False

    def start(self, command: list[str]) -> Remote:
        return Remote(cast(ExecSocket, self), command)

    def frames(self) -> Iterator[dict[str, Any] | bytes]:
        yield {"t": "ready"}
        yield {"t": "started"}
        if self._archive:
            yield b"\x01" + self._archive
            yield {"t": "exit", "code": 0}
            return
        if "-xf" in self._command:
            assert self._ended.wait(60)
            if self._is_closed:
                raise ConnectionLost("The connection was lost.")
        done = subprocess.run(self._command, input=self._input, capture_output=True, check=False)
        for start in range(0, len(done.stdout), 10_000):
            yield b"\x01" + done.stdout[start : start + 10_000]
        yield b"\x02" + done.stderr
        yield {"t": "exit", "code": done.returncode}

    def close(self) -> None:
        self._is_closed = True
        self._ended.set()

    def enter(self, data: bytes) -> None:
        self._input += data

    def tell(self, **message: Any) -> None:
        self._command = message.get("command", self._command)
        if message.get("op") == "end_input":
            self._ended.set()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "below" / "b.bin").write_bytes(bytes(100_000))
    (tmp_path / "there").mkdir()
    return source


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_directory_arrives_as_it_was(tree: Path, tmp_path: Path) -> None:
    fetch(LocalReplica().start, str(tree), tmp_path / "there", Lines())
    fetch(LocalReplica().start, str(tree), tmp_path / "new", Lines())
    send(LocalReplica().start, tree, f"{tmp_path}/there/sent", Lines())
    send(LocalReplica().start, tree / "a.txt", f"{tmp_path}/there/", Lines())
    for copy in ("there/source", "new", "there/sent"):
        assert contents(tmp_path / copy) == contents(tree)
    assert (tmp_path / "there" / "a.txt").read_text() == "a"


def test_a_file_that_cannot_be_read_ends_the_copy(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tarfile.TarFile, "add", unreadable)
    with pytest.raises(Refusal, match=r"not complete: .*Permission denied"):
        send(LocalReplica().start, tree, f"{tmp_path}/there/sent", Lines())


def test_a_failure_of_tar_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="No such file"):
        fetch(LocalReplica().start, f"{tmp_path}/missing", tmp_path, Lines())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


@pytest.mark.invariant("A copy from a replica writes only files and directories below its target.")
@pytest.mark.parametrize(
    "hostile",
    [
        member("../evil"),
        member("/evil"),
        member("data/../../evil"),
        member("evil"),
        member("data/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("data/hard", tarfile.LNKTYPE, "/etc/passwd"),
        member("data/pipe", tarfile.FIFOTYPE),
        member("data/device", tarfile.CHRTYPE),
    ],
    ids=lambda found: found.name,
)
def test_a_hostile_archive_writes_nothing_elsewhere(tmp_path: Path, hostile: tarfile.TarInfo) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(hostile, io.BytesIO())
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with pytest.raises(Refusal):
        fetch(LocalReplica(archive.getvalue()).start, "/work/data", target, Lines())
    assert not list(tmp_path.rglob("evil"))
    assert not list(target.rglob("*"))


def test_a_link_at_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("kept")
    (tmp_path / "data").symlink_to(tmp_path / "own")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(member("data"), io.BytesIO())
    with pytest.raises(OSError, match="symbolic links"):
        fetch(LocalReplica(archive.getvalue()).start, "/work/data", tmp_path, Lines())
    assert (tmp_path / "own").read_text() == "kept"


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no archive"):
        fetch(LocalReplica(b"x" * 2000).start, "/work/data", tmp_path, Lines())
