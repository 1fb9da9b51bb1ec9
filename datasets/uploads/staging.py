"""Staging of uploads: one file on this machine collects the parts of a file, each at its offset.

The checksum of a part is computed while it streams. A new part is written directly to its range, which is locked
meanwhile; the range is not valid until the part is recorded. A part goes to an unnamed temporary file first, and is
then copied to its range, if its range holds data, another request writes it, or the sender is slow. A kill leaves
nothing of that file. So an interrupted or duplicated transfer never damages existing data. A part is synced to disk
before it is reported as received.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from uuid import UUID

from datasets import messages
from datasets.checksums import Checksum
from datasets.errors import ChecksumMismatch, CutOff, WrongLength
from datasets.storage.base import StorageError, StorageFull

_PIECE = 1 << 20
# Other senders of the same part wait at most this long for a slow one.
IN_PLACE_SECONDS = 10.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# The kernel cannot copy between these files; then they are copied in user space.
_NO_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
# struct flock: type, whence, start, length, pid.
_LOCK = struct.Struct("hhqqi4x")


class Body(Protocol):
    """Source of a part's bytes. It may return fewer than requested, but none only at its end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Placing:
    """Callbacks around writing a part to its range.

    All are called while nobody else can write or freeze the range; ``vacant`` is also called before that.

    ``vacant`` returns whether the part may be written and no data of it is recorded. ``allow`` raises if the part may
    no longer be written, and returns False if the same bytes are already there. ``note`` records the part once it is on
    the disk.
    """

    vacant: Callable[[], bool]
    allow: Callable[[], bool]
    note: Callable[[], None]


def take_part(folder: Path, name: UUID, body: Body, *, span: tuple[int, int], checksum: Checksum, by: Placing) -> None:
    """Receive a part into the file ``name``. On return it is on the disk and recorded.

    ``span`` is offset and length. Raises WrongLength, CutOff, ChecksumMismatch, StorageFull, StorageError; in these
    cases nothing has changed.
    """
    with _storage_errors(), _PartWriter(folder, name, span, by) as writer:
        found = _receive(body, writer.write, span[1], checksum)
        if found != checksum.text:
            raise ChecksumMismatch(
                messages.PART_CHECKSUM_MISMATCH(),
                checksum=found,
            )
        writer.settle()


def _receive(body: Body, write: Callable[[bytes], None], length: int, checksum: Checksum) -> str:
    digest = checksum.kind.begin()
    left = length
    while left:
        piece = _read_piece(body, min(_PIECE, left))
        if not piece:
            raise CutOff(messages.PART_TRUNCATED(size=left))
        write(piece)
        digest.update(piece)
        left -= len(piece)
    if _read_piece(body, 1):
        raise WrongLength(messages.PART_TOO_LONG(size=length))
    return digest.hexdigest()


def _read_piece(body: Body, size: int) -> bytes:
    try:
        return body.read(size)
    except OSError as error:  # the sender's connection, not our disk
        raise CutOff(messages.PART_INCOMPLETE(why=error)) from error


class _PartWriter:
    """Destination of a part: its range while that is vacant and locked, else a temporary file."""

    def __init__(self, folder: Path, name: UUID, span: tuple[int, int], by: Placing) -> None:
        self._folder = folder
        self._name = name
        self._offset, self._length = span
        self._by = by
        self._done = 0
        self._begun = time.monotonic()
        self._place: int | None = None  # the file with the range, while that is locked
        self._temporary: BinaryIO | None = None

    def __enter__(self) -> _PartWriter:
        try:
            self._begin()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _begin(self) -> None:
        if self._by.vacant():
            self._place = _open(self._folder, self._name)
            if _lock_at_once(self._place, self._offset, self._length) and self._by.vacant():
                return
        self._move_to_temporary()

    def write(self, piece: bytes) -> None:
        if self._place is not None and time.monotonic() > self._begun + IN_PLACE_SECONDS:
            self._move_to_temporary()
        if self._temporary is not None:
            self._temporary.write(piece)
        elif self._place is not None:
            _write(self._place, piece, self._offset + self._done)
        self._done += len(piece)

    def _move_to_temporary(self) -> None:
        """Move what was received to a temporary file, continue there, and release the range."""
        self._temporary = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  closed with the landing
        if self._place is not None:
            _copy(self._place, self._offset, self._temporary.fileno(), 0, self._done)
            self._temporary.seek(self._done)
            os.close(self._place)
            self._place = None

    def settle(self) -> None:
        """Finish a part that was received and verified: write it to its range, sync it, and record it."""
        is_there = self._place is not None
        if self._place is None:
            self._place = _open(self._folder, self._name)
            _lock(self._place, fcntl.F_WRLCK, self._offset, self._length)
        if self._by.allow():
            if not is_there and self._temporary is not None:
                _copy(self._temporary.fileno(), 0, self._place, self._offset, self._length)
            os.fdatasync(self._place)
            self._by.note()

    def _close(self) -> None:
        if self._place is not None:
            os.close(self._place)
        if self._temporary is not None:
            self._temporary.close()


def _open(folder: Path, name: UUID) -> int:
    """Open the staging file. Its name survives a power cut."""
    path = path_of(folder, name)
    is_new = not path.exists()
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if is_new:
        _sync_directory(folder)
    return target


def _lock_at_once(descriptor: int, offset: int, length: int) -> bool:
    """Lock a range for writing, unless another request writes it. Return whether it is locked."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, length, 0))
    except (BlockingIOError, PermissionError):  # EAGAIN, or EACCES on some file systems
        return False
    return True


def _lock(descriptor: int, kind: int, offset: int, length: int) -> None:
    """Wait until no other request, of this or another process, writes this range. Closing the descriptor unlocks it."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _LOCK.pack(kind, os.SEEK_SET, offset, length, 0))


def _write(target: int, piece: bytes, offset: int) -> None:
    left = memoryview(piece)
    while left:
        count = os.pwrite(target, left, offset)
        left, offset = left[count:], offset + count


def _copy(source: int, start: int, target: int, offset: int, length: int) -> None:
    done = 0
    try:
        while done < length and (
            count := os.copy_file_range(source, target, length - done, start + done, offset + done)
        ):
            done += count
    except OSError as error:
        if error.errno not in _NO_COPY:
            raise
    while done < length:
        piece = os.pread(source, min(_PIECE, length - done), start + done)
        if not piece:
            raise OSError(errno.EIO, "what was received of it cannot be read back")
        _write(target, piece, offset + done)
        done += len(piece)


def settle(folder: Path, name: UUID) -> None:
    """Wait for writes in progress. A missing staging file is not an error."""
    with (
        _storage_errors(),
        contextlib.suppress(FileNotFoundError),
        path_of(folder, name).open("rb", buffering=0) as file,
    ):
        _lock(file.fileno(), fcntl.F_RDLCK, 0, 0)


def path_of(folder: Path, name: UUID) -> Path:
    """Return the path of the staging file."""
    return folder / name.hex


def make_empty(folder: Path, name: UUID) -> None:
    """Create the staging file of an empty file, which has no parts."""
    with _storage_errors():
        path_of(folder, name).touch(mode=0o600)


def discard(folder: Path, name: UUID) -> None:
    """Delete the staging file. A missing file is not an error."""
    path_of(folder, name).unlink(missing_ok=True)


def gathered(folder: Path) -> Iterator[tuple[UUID, float]]:
    """Yield the names of all staging files, and their modification times (seconds since the epoch)."""
    for path in folder.iterdir():
        with contextlib.suppress(ValueError, FileNotFoundError):
            yield UUID(path.name), path.stat().st_mtime


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(messages.DISK_FULL_UPLOAD()) from error
        why = error.strerror or error
        raise StorageError(messages.PART_NOT_WRITTEN(why=why)) from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
