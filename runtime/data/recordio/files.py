"""Reads of pieces of a file from any thread.

Pieces are read and not mapped into memory: if a mapped file is cut short while it is read, the process is killed.
"""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

File = str | os.PathLike[str] | IO[bytes]


class Source:
    """A file by its path, or an open one that is readable and seekable.

    ``close`` closes only a file that was opened here.
    """

    def __init__(self, file: File) -> None:
        if isinstance(file, str | os.PathLike):
            self.name = str(file)
            self._file: IO[bytes] = Path(file).open("rb", buffering=0)  # noqa: SIM115  closed by close
            self._owned = True
        else:
            self.name = str(getattr(file, "name", "the file"))
            self._file, self._owned = file, False
        self._seeking = threading.Lock()
        # A file that is also open for writing may have buffered bytes that its descriptor does not have yet.
        direct = isinstance(self._file, io.FileIO | io.BufferedReader) and not self._file.writable()
        self._descriptor = self._file.fileno() if direct else None

    def size(self) -> int:
        """Return the current size in bytes."""
        if self._descriptor is not None:
            return os.fstat(self._descriptor).st_size
        with self._seeking:
            return self._file.seek(0, io.SEEK_END)

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer at the end of the file."""
        if self._descriptor is None:
            with self._seeking:
                self._file.seek(offset)
                return self._file.read(length)
        data = os.pread(self._descriptor, length, offset)
        while 0 < len(data) < length and (more := os.pread(self._descriptor, length - len(data), offset + len(data))):
            data += more
        return data

    def close(self) -> None:
        if self._owned:
            self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
