"""What jobs keep for their next attempt: a directory with a folder of checkpoints for each, by its id.

It may be a volume that others see too. What is not called as a job is left alone.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID


class CheckpointStore:
    """None are there while the directory is not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, job_id: str) -> Path:
        """Where those of the job are."""
        return self._directory / job_id

    def sizes(self) -> Mapping[str, int]:
        """The ids of the jobs that have some, and how many bytes."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return {path.name: _size_of(path) for path in self._directory.iterdir() if _is_of_a_job(path)}
        return {}

    def forget(self, job_id: str) -> None:
        """Remove them. What is not gone afterwards is still counted, and tried again."""
        shutil.rmtree(self.of(job_id), ignore_errors=True)


def _is_of_a_job(path: Path) -> bool:
    try:
        return str(UUID(path.name)) == path.name and path.is_dir() and not path.is_symlink()
    except ValueError:
        return False


def _size_of(directory: Path) -> int:
    """The bytes of all files below it. What goes while they are added up counts as nothing."""
    size = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size
