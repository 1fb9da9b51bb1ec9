"""Where the parts of a file gather on this machine until it is whole: one file, each part at its own place.

A part first goes to a temporary file without a name, which a kill leaves nothing of, is measured against its checksum
while it streams, and only then is copied to its place; so whatever is cut off, or sent twice at once, never spoils what
was there. A part is on the disk before anybody is told that it is there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from uuid import UUID

from datasets.checksums import Checksum
from datasets.errors import ChecksumMismatch, CutOff, WrongLength
from datasets.storage.base import StorageError, StorageFull

_PIECE = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Copying inside the kernel is not possible between these files; then they are copied by hand.
_NO_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
# struct flock: type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")


class Body(Protocol):
    """What gives the bytes of a part; fewer than asked for, but none only at its end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Placing:
    """What surrounds the writing of a part's place; both are called when nobody else can write or freeze it.

    ``allow`` raises where it may not be written any more, and is False where it need not be: the bytes are there.
    ``note`` writes down that they are there, when they are on the disk.
    """

    allow: Callable[[], bool]
    note: Callable[[], None]


def take_part(folder: Path, name: UUID, body: Body, *, span: tuple[int, int], checksum: Checksum, by: Placing) -> None:
    """Receive a part and put it at its place in the file ``name``; on the disk and noted when this returns. ``span`` is
    offset and length.

    Raises WrongLength, CutOff, ChecksumMismatch, StorageFull, StorageError; nothing has changed then.
    """
    offset, length = span
    with _in_words(), tempfile.TemporaryFile(dir=folder, buffering=0) as part:
        found = _receive(body, part, length, checksum)
        if found != checksum.text:
            raise ChecksumMismatch(
                "The part has another checksum than was announced: it was damaged on its way. Send it again.",
                checksum=found,
            )
        _place(part.fileno(), folder, name, offset, length, by)


def _receive(body: Body, part: BinaryIO, length: int, checksum: Checksum) -> str:
    digest = checksum.kind.begin()
    left = length
    while left:
        piece = _read_piece(body, min(_PIECE, left))
        if not piece:
            raise CutOff(f"The part ended {left} bytes early. Send it again.")
        part.write(piece)
        digest.update(piece)
        left -= len(piece)
    if _read_piece(body, 1):
        raise WrongLength(f"The part has more than its {length} bytes.")
    return digest.hexdigest()


def _read_piece(body: Body, size: int) -> bytes:
    try:
        return body.read(size)
    except OSError as error:  # the sender's connection, not our disk
        raise CutOff(f"The part did not come whole: {error}. Send it again.") from error


def _place(part: int, folder: Path, name: UUID, offset: int, length: int, by: Placing) -> None:
    path = path_of(folder, name)
    is_new = not path.exists()
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(target, fcntl.F_WRLCK, offset, length)
        if by.allow():
            _copy(part, target, offset, length)
            os.fdatasync(target)
            if is_new:
                _sync_directory(folder)
            by.note()
    finally:
        os.close(target)


def _lock(descriptor: int, kind: int, offset: int, length: int) -> None:
    """Wait until no other request, of this or another process, writes this place. Ends with the descriptor."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _LOCK.pack(kind, os.SEEK_SET, offset, length, 0))


def _copy(source: int, target: int, offset: int, length: int) -> None:
    done = 0
    try:
        while done < length:
            done += os.copy_file_range(source, target, length - done, done, offset + done)
    except OSError as error:
        if error.errno not in _NO_COPY:
            raise
    while done < length:
        done += os.pwrite(target, os.pread(source, min(_PIECE, length - done), done), offset + done)


def settle(folder: Path, name: UUID) -> None:
    """Wait until whoever writes a place at this moment is done. Nothing happens where nothing gathers."""
    with _in_words(), contextlib.suppress(FileNotFoundError), path_of(folder, name).open("rb", buffering=0) as file:
        _lock(file.fileno(), fcntl.F_RDLCK, 0, 0)


def path_of(folder: Path, name: UUID) -> Path:
    """Where the parts of a file gather."""
    return folder / name.hex


def make_empty(folder: Path, name: UUID) -> None:
    """The file without any part: an empty one."""
    with _in_words():
        path_of(folder, name).touch(mode=0o600)


def discard(folder: Path, name: UUID) -> None:
    """Forget what has gathered. Nothing happens where nothing has."""
    path_of(folder, name).unlink(missing_ok=True)


def gathered(folder: Path) -> Iterator[tuple[UUID, float]]:
    """What gathers, by name, and when it was last written (seconds since the epoch)."""
    for path in folder.iterdir():
        with contextlib.suppress(ValueError, FileNotFoundError):
            yield UUID(path.name), path.stat().st_mtime


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("The portal's disk is full. Tell its operator, then go on with the upload.") from error
        why = error.strerror or error
        raise StorageError(f"The part could not be written: {why}. Ask the operator of the portal.") from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
