"""The few things that a checkpoint asks of a file system, each of which may be the last before a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol


class Draft(Protocol):
    """A file that is being written."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def sync(self) -> None:
        """Return when what was written survives a loss of power."""

    def close(self) -> None: ...


class Files(Protocol):
    """One directory. Every method may raise OSError."""

    def create(self, name: str) -> Draft:
        """A new file; it must not exist."""

    def sync_directory(self) -> None:
        """Return when the names of new files survive a loss of power."""

    def open(self, name: str) -> BinaryIO: ...

    def delete(self, name: str) -> None:
        """No error if it is not there."""

    def names(self) -> Iterable[str]: ...


class LocalFiles:
    """A directory of this machine, made when needed."""

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
    """Where an attempt keeps its checkpoints, in its job's directory."""
    return LocalFiles(directory / str(number))


def before_attempt(directory: Path, number: int) -> list[LocalFiles]:
    """The same of all attempts before, the last one first."""
    return [of_attempt(directory, earlier) for earlier in range(number - 1, 0, -1)]


class _LocalDraft:
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self._file.write(view) :]

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
