"""Disk space that an agent reserves at its start for the last file that it writes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BYTES = 256 * 1024
FILE = "reserve"


class Reserve:
    """File with allocated blocks. If they cannot be allocated, there is no file, and ``release`` frees nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, BYTES)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Free the blocks. May be called twice."""
        with contextlib.suppress(OSError):
            self._path.unlink()
