"""Where the parts of a file gather on this machine until it is whole: one file, each part at its own place.

A part is measured against its checksum while it streams. Where there is none of it yet it streams straight to its
place, which is locked meanwhile: what lies there counts for nothing before it is noted. Where there is one, or somebody
else brings one, or the sender is slow, it goes to a temporary file without a name, which a kill leaves nothing of, and
only then is copied to its place; so whatever is cut off, or sent twice at once, never spoils what was there. A part is
on the disk before anybody is told that it is there.
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

from datasets.checksums import Checksum
from datasets.errors import ChecksumMismatch, CutOff, WrongLength
from datasets.storage.base import StorageError, StorageFull

_PIECE = 1 << 20
# Nobody else who brings the same part waits longer than so for one that comes slowly.
IN_PLACE_SECONDS = 10.0
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
    """What surrounds the writing of a part's place; all are called when nobody else can write or freeze it, ``vacant``
    also before.

    ``vacant``: nothing of the part is known to be there, and it may come. ``allow`` raises where it may not be written
    any more, and is False where it need not be: the bytes are there.
    ``note`` writes down that they are there, when they are on the disk.
    """

    vacant: Callable[[], bool]
    allow: Callable[[], bool]
    note: Callable[[], None]


def take_part(folder: Path, name: UUID, body: Body, *, span: tuple[int, int], checksum: Checksum, by: Placing) -> None:
    """Receive a part and put it at its place in the file ``name``; on the disk and noted when this returns. ``span`` is
    offset and length.

    Raises WrongLength, CutOff, ChecksumMismatch, StorageFull, StorageError; nothing has changed then.
    """
    with _in_words(), _Landing(folder, name, span, by) as landing:
        found = _receive(body, landing.write, span[1], checksum)
        if found != checksum.text:
            raise ChecksumMismatch(
                "The part has another checksum than was announced: it was damaged on its way. Send it again.",
                checksum=found,
            )
        landing.settle()


def _receive(body: Body, write: Callable[[bytes], None], length: int, checksum: Checksum) -> str:
    digest = checksum.kind.begin()
    left = length
    while left:
        piece = _read_piece(body, min(_PIECE, left))
        if not piece:
            raise CutOff(f"The part ended {left} bytes early. Send it again.")
        write(piece)
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


class _Landing:
    """Where a part is received: at its place while that is vacant and locked, else aside."""

    def __init__(self, folder: Path, name: UUID, span: tuple[int, int], by: Placing) -> None:
        self._folder = folder
        self._name = name
        self._offset, self._length = span
        self._by = by
        self._done = 0
        self._begun = time.monotonic()
        self._place: int | None = None  # the file in which it has its place, while that is locked
        self._aside: BinaryIO | None = None

    def __enter__(self) -> _Landing:
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
        self._step_aside()

    def write(self, piece: bytes) -> None:
        if self._place is not None and time.monotonic() > self._begun + IN_PLACE_SECONDS:
            self._step_aside()
        if self._aside is not None:
            self._aside.write(piece)
        elif self._place is not None:
            _write(self._place, piece, self._offset + self._done)
        self._done += len(piece)

    def _step_aside(self) -> None:
        """Go on in a file of its own, with what has come so far, and let others have the place."""
        self._aside = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  closed with the landing
        if self._place is not None:
            _copy(self._place, self._offset, self._aside.fileno(), 0, self._done)
            self._aside.seek(self._done)
            os.close(self._place)
            self._place = None

    def settle(self) -> None:
        """All of it has come, and is what was announced: have it at its place, on the disk, and noted."""
        is_there = self._place is not None
        if self._place is None:
            self._place = _open(self._folder, self._name)
            _lock(self._place, fcntl.F_WRLCK, self._offset, self._length)
        if self._by.allow():
            if not is_there and self._aside is not None:
                _copy(self._aside.fileno(), 0, self._place, self._offset, self._length)
            os.fdatasync(self._place)
            self._by.note()

    def _close(self) -> None:
        if self._place is not None:
            os.close(self._place)
        if self._aside is not None:
            self._aside.close()


def _open(folder: Path, name: UUID) -> int:
    """The file in which parts gather; it is there after a power cut too."""
    path = path_of(folder, name)
    is_new = not path.exists()
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if is_new:
        _sync_directory(folder)
    return target


def _lock_at_once(descriptor: int, offset: int, length: int) -> bool:
    """Lock a place for writing, unless another request writes it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, length, 0))
    except (BlockingIOError, PermissionError):  # EAGAIN, or EACCES where a file system says that
        return False
    return True


def _lock(descriptor: int, kind: int, offset: int, length: int) -> None:
    """Wait until no other request, of this or another process, writes this place. Ends with the descriptor."""
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
