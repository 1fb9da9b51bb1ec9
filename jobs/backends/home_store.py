"""Homes of notebooks: a directory with one subdirectory for each namespace id.

The directory may be a volume that others use too. Entries whose names are not ids are left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from jobs.backends.checkpoint_store import size_of


class HomeStore:
    """Homes of all namespaces below a directory. A missing directory counts as empty."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, namespace_id: str) -> Path:
        """Return the home of a namespace."""
        return self._directory / namespace_id

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each home, by the id of its namespace."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return {path.name: size_of(path) for path in self._directory.iterdir() if _is_home(path)}
        return {}


def _is_home(path: Path) -> bool:
    return path.name.isdecimal() and path.is_dir() and not path.is_symlink()
