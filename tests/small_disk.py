"""A file system of a given size, which tests fill."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import syscalls

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system of a given size")


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system of this size inside the block."""
    syscalls.mount("tmpfs", str(path), "tmpfs", 0, f"size={megabytes}m,mode=755")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def filled(path: Path) -> Iterator[None]:
    """Use up the space of the file system inside the block."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()
