"""The file-system operations that a checkpoint needs. Any of them may be the last before a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol

# The number of bytes written at once. Direct writing requires whole pages, aligned to pages.
_BUFFER_BYTES = 4 << 20


class Draft(Protocol):
    """A file that is being written."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def sync(self) -> None:
        """Return when the written bytes survive a power loss."""

    def close(self) -> None: ...


class Files(Protocol):
    """One directory. Every method may raise OSError."""

    def create(self, name: str) -> Draft:
        """Create a new file; it must not exist."""

    def sync_directory(self) -> None:
        """Return when the names of new files survive a power loss."""

    def open(self, name: str) -> BinaryIO: ...

    def delete(self, name: str) -> None:
        """Delete a file. It is no error if it does not exist."""

    def names(self) -> Iterable[str]: ...


class LocalFiles:
    """A directory of this machine, created when needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self, name: str) -> Draft:
        self.directory.mkdir(parents=True, exist_ok=True)
        return _LocalDraft(self.directory / name)

    def sync_directory(self) -> None:
        for directory in (self.directory, self.directory.parent):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def open(self, name: str) -> BinaryIO:
        return (self.directory / name).open("rb")

    def delete(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    def names(self) -> Iterable[str]:
        return sorted(path.name for path in self.directory.iterdir()) if self.directory.is_dir() else []


def of_attempt(directory: Path, number: int) -> LocalFiles:
    """The directory of an attempt's checkpoints, in its job's directory."""
    return LocalFiles(directory / str(number))


def before_attempt(directory: Path, number: int) -> list[LocalFiles]:
    """The same directories of all earlier attempts, the last one first."""
    return [of_attempt(directory, earlier) for earlier in range(number - 1, 0, -1)]


class _LocalDraft:
    """A file written past the page cache where the file system supports it.

    A checkpoint is written once and read only after a crash, and would displace from the cache what training reads.
    Whole buffers are written, one while the next is filled.
    """

    def __init__(self, path: Path) -> None:
        self._file, self._direct = _open_direct(path)
        try:
            self._filling, self._leaving = mmap.mmap(-1, _BUFFER_BYTES), mmap.mmap(-1, _BUFFER_BYTES)
        except Exception:  # memory is short
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise
        self._filled = 0
        self._size = 0  # of what was written
        self._thread = ThreadPoolExecutor(1, "checkpoint-file")
        self._left: Future[None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view.nbytes:
            part = view[: _BUFFER_BYTES - self._filled]
            self._filling[self._filled : self._filled + part.nbytes] = part
            self._filled += part.nbytes
            view = view[part.nbytes :]
            if self._filled == _BUFFER_BYTES:
                self._send(_BUFFER_BYTES)

    def sync(self) -> None:
        """Fill an incomplete page with zeros, write it, and truncate the file to its size."""
        size = self._size + self._filled
        if self._filled:
            end = -(-self._filled // mmap.PAGESIZE) * mmap.PAGESIZE
            self._filling[self._filled : end] = bytes(end - self._filled)
            self._send(end)
        self._wait()
        os.ftruncate(self._file, size)
        os.fsync(self._file)

    def close(self) -> None:
        self._thread.shutdown()
        os.close(self._file)

    def _send(self, count: int) -> None:
        """Write the filled buffer in the background and fill the other one. Raises OSError, also of the one before."""
        self._wait()
        self._filling, self._leaving = self._leaving, self._filling
        self._left = self._thread.submit(self._write_out, count)
        self._size, self._filled = self._size + count, 0

    def _wait(self) -> None:
        if self._left is not None:
            self._left.result()

    def _write_out(self, count: int) -> None:
        with memoryview(self._leaving) as buffer:
            sent = 0
            while sent < count:
                sent += self._write_some(buffer[sent:count])
        if not self._direct:
            with contextlib.suppress(OSError):  # it is advice, which some file systems do not accept
                # written out now, then dropped from the cache
                os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def _write_some(self, part: memoryview) -> int:
        try:
            return os.write(self._file, part)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
        # Opening succeeded, but the file system requires other sizes or offsets.
        self._direct = False
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~os.O_DIRECT)
        return os.write(self._file, part)


def _open_direct(path: Path) -> tuple[int, bool]:
    """Create a file; return its descriptor and whether writes to it bypass the page cache."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o666), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # Some systems create the file before they refuse.
    path.unlink(missing_ok=True)
    return os.open(path, flags, 0o666), False
