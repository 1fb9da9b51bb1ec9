"""Recorder of disk operations in order: files and directories that are synced, and renames.

Data written without being synced may be lost in a power cut, however long ago that was. A test compares the record with
the order in which data may become visible.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

# Temporary names have a random part.
_RANDOM = re.compile(r"(?<=^\.put-).*")


class RecordingDisk:
    """``steps`` are like ``sync a.bin``, ``sync folder/`` and ``rename a.part a``; tests may add their own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._syncing(getattr(os, name)))
        # Path.replace looks up its system call when it is called.
        patch.setattr(os, "replace", self._renaming(os.replace))

    def _syncing(self, sync: Any) -> Any:
        def recorded(descriptor: Any) -> None:
            sync(descriptor)
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            path = Path(f"/proc/self/fd/{number}").readlink()
            self.steps.append(f"sync {_named(path)}{'/' if path.is_dir() else ''}")

        return recorded

    def _renaming(self, rename: Any) -> Any:
        def recorded(source: Any, target: Any, **named: Any) -> None:
            rename(source, target, **named)
            self.steps.append(f"rename {_named(Path(source))} {_named(Path(target))}")

        return recorded


def _named(path: Path) -> str:
    return _RANDOM.sub("*", path.name)
