"""Bytes of the disk that an agent holds from its beginning, for the last thing that it writes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BYTES = 256 * 1024
FILE = "reserve"


class Reserve:
    """A file whose blocks are allocated. Where they cannot be, there is none, and ``release`` frees nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, BYTES)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Give the blocks back to the disk. May be called twice."""
        with contextlib.suppress(OSError):
            self._path.unlink()
