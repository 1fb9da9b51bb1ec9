"""Command that copies files between this computer and a running replica: ``cp``.

The content passes as a tar archive through the standard streams of ``tar`` in the replica. What comes from there is
hostile input: only files and directories below the target are written.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, cast

import click

from regatta.errors import PortalError, Refused
from regatta.exec_socket import INPUT_BYTES, ExecSocket
from regatta.session import Session, take
from regatta.terminal.progress import Shown, shown

_STDOUT, _STDERR = 1, 2
_LONGEST_COMPLAINT = 2000
# The progress of larger files is shown, in bytes.
_LARGE = 16 * 1024 * 1024
_REMOTE = re.compile(r"(?P<job>[0-9A-Za-z][0-9A-Za-z_-]*):(?P<path>/?.+)")
_PIECE = 256 * 1024


class Refusal(Refused):
    """The archive from the replica, or the command there, is not as it should be."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, code="copy_failed")


class Remote:
    """A started command of the replica: its further frames, and its input."""

    def __init__(self, socket: ExecSocket, command: list[str]) -> None:
        self.socket, self.frames = socket, socket.frames()
        for frame in self.frames:
            kind = "" if isinstance(frame, bytes) else frame["t"]
            if kind == "ready":
                socket.tell(command=command)
            elif kind == "started":
                return
        raise Refusal("The command could not be started in the replica.")


# Starts a command in the replica.
Start = Callable[[list[str]], Remote]


# --- From a replica --------------------------------------------------------------------------------------------------
class _Output(io.RawIOBase):
    """The standard output of a command, as a file that is read once."""

    def __init__(self, remote: Remote) -> None:
        self._frames, self._rest = remote.frames, b""
        self.complaint, self.code = b"", -1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = cast(memoryview, memoryview(buffer))  # type: ignore[arg-type]
        while not self._rest:
            frame = next(self._frames, None)
            if frame is None:
                return 0
            if isinstance(frame, bytes):
                self._take(frame)
            elif frame["t"] == "exit":
                self.code = int(frame["code"])
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def drain(self) -> None:
        """Read to the end of the command, for its exit code and what it has written to standard error."""
        for frame in self._frames:
            if isinstance(frame, bytes):
                self._take(frame)
            elif frame["t"] == "exit":
                self.code = int(frame["code"])

    def _take(self, frame: bytes) -> None:
        if frame[0] == _STDOUT:
            self._rest = frame[1:]
        else:
            self.complaint = (self.complaint + frame[1:])[:_LONGEST_COMPLAINT]


def fetch(start: Start, path: str, target: Path, progress: Shown) -> None:
    """Copy a file or directory of the replica to ``target``, or into it if that is a directory. Raises PortalError."""
    remote = PurePosixPath(path)
    output = _Output(start(["tar", "-cf", "-", "-C", str(remote.parent), "--", remote.name]))
    root = target / remote.name if target.is_dir() else target
    with progress:
        try:
            with tarfile.open(fileobj=cast(IO[bytes], io.BufferedReader(output)), mode="r|") as archive:
                for member in archive:
                    _write(archive, member, remote.name, root, progress)
        except tarfile.TarError as error:
            output.drain()
            raise Refusal(_complaint(output) or f"The replica has sent no archive: {error}.") from None
    output.drain()
    if output.code:
        raise Refusal(_complaint(output) or f"tar has ended with {output.code} in the replica.")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, root: Path, progress: Shown) -> None:
    place = place_of(member, name, root)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    source = archive.extractfile(member)
    assert source is not None  # noqa: S101  a regular file has content
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.size >= _LARGE:
        progress.begin(place.name, member.size)
    # A link at this place, which an earlier copy or another program has left, is not followed.
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        while piece := source.read(_PIECE):
            file.write(piece)
            if member.size >= _LARGE:
                progress.advance(len(piece))


def place_of(member: tarfile.TarInfo, name: str, root: Path) -> Path:
    """Return where a member is written. Raises Refusal for one outside of ``root``, and for links and devices."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name or path.parts[:1] != (name,):
        raise Refusal(f"The replica has sent a file outside of the copied directory: {member.name!r}.")
    if not member.isdir() and not member.isreg():
        raise Refusal(f"{member.name!r} is a link or a device, which is not copied.")
    return root.joinpath(*path.parts[1:])


# --- To a replica ----------------------------------------------------------------------------------------------------
class _Input(io.RawIOBase):
    """The standard input of a command, as a file that is written once."""

    def __init__(self, socket: ExecSocket, progress: Shown) -> None:
        self._socket, self._progress = socket, progress

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        self._socket.enter(content)
        self._progress.advance(len(content))
        return len(content)


def send(start: Start, source: Path, path: str, progress: Shown) -> None:
    """Copy a file or directory to the path of the replica, or into it if it ends with a slash. Raises PortalError."""
    remote = PurePosixPath(path, source.name) if path.endswith("/") else PurePosixPath(path)
    started = start(["tar", "-xf", "-", "--no-same-owner", "-C", str(remote.parent)])
    output = _Output(started)
    failed: list[Exception] = []

    def write() -> None:
        try:
            _archive(source, remote.name, started.socket, progress)
        except (OSError, tarfile.TarError) as error:
            failed.append(error)
            started.socket.close()  # ends the wait for the command

    with progress:
        progress.begin(source.name, sum(file.stat().st_size for file in (source, *source.rglob("*")) if file.is_file()))
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            output.drain()
        except PortalError:
            if not failed:
                raise
        writer.join(1.0)
    if failed:
        raise Refusal(f"The copy is not complete: {failed[0]}.")
    if output.code:
        raise Refusal(_complaint(output) or f"tar has ended with {output.code} in the replica.")


def _archive(source: Path, name: str, socket: ExecSocket, progress: Shown) -> None:
    stream = io.BufferedWriter(_Input(socket, progress), INPUT_BYTES)
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as archive:
        archive.add(source, arcname=name)
    stream.flush()
    socket.tell(op="end_input")


def _complaint(output: _Output) -> str:
    text = output.complaint.decode("utf-8", "replace").strip()
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")


# --- The command -----------------------------------------------------------------------------------------------------
@click.command("cp")
@click.argument("source")
@click.argument("target")
@click.option("-r", "--replica", default="", help="The replica, such as trainer-1. Default: the first trainer.")
@take
def copy(session: Session, source: str, target: str, replica: str) -> None:
    """Copy a file or directory between this computer and a running replica.

    One of both is JOB:PATH: regatta cp JOB:output/model.npz . or regatta cp data JOB:/tmp/. Relative paths begin in the
    directory of the job's code. Links are not copied from a replica. The replica needs the program tar.
    """
    there, here = _REMOTE.fullmatch(source), _REMOTE.fullmatch(target)
    remote = there or here
    if remote is None or (there is not None and here is not None):
        raise click.UsageError("Write JOB:PATH for one of both, and a path of this computer for the other.")
    with session.portal() as portal:
        job = portal.jobs.get(remote["job"])
    context = session.context()

    def start(command: list[str]) -> Remote:
        return Remote(ExecSocket(context.server, context.token, job=job.id, replica=replica, command=1), command)

    if there is not None:
        fetch(start, there["path"], Path(target), shown())
    else:
        if not Path(source).exists():
            raise click.UsageError(f"There is no file {source!r} on this computer.")
        send(start, Path(source).resolve(), remote["path"], shown())


COMMANDS = (copy,)
