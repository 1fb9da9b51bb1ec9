"""Checkpoints that jobs keep for their next attempt: a directory with one subdirectory for each job id.

The directory may be a volume that others use too. Entries whose names are not job ids are left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID


class CheckpointStore:
    """Checkpoints of all jobs below a directory. A missing directory counts as empty."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, job_id: str) -> Path:
        """Return the directory of a job's checkpoints."""
        return self._directory / job_id

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each job's checkpoints, by job id."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return {path.name: size_of(path) for path in self._directory.iterdir() if _is_of_a_job(path)}
        return {}

    def last(self, job_id: str) -> int:
        """Return the highest number of an attempt of the job with checkpoints (a directory with that name), or 0."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return max((int(path.name) for path in self.of(job_id).iterdir() if path.name.isdecimal()), default=0)
        return 0

    def forget(self, job_id: str) -> None:
        """Remove the checkpoints of a job. Files that could not be removed are still counted, and retried."""
        shutil.rmtree(self.of(job_id), ignore_errors=True)


def _is_of_a_job(path: Path) -> bool:
    try:
        return str(UUID(path.name)) == path.name and path.is_dir() and not path.is_symlink()
    except ValueError:
        return False


def size_of(directory: Path) -> int:
    """Return the bytes of all files below the directory. Files that are deleted meanwhile count as 0."""
    size = 0
    # A directory that is removed during the walk, or cannot be read, is left out. No link is followed.
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(f"{parent}/{name}")
                size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size
