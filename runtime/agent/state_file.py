"""The replica's state file, and the disk space that is reserved for its last version."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.contract import ReplicaState

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


class StateFile:
    """The state of the replica, written after every change. ``exited`` is the last phase. Any thread may change it.

    Create it with the replica's lock held: it reserves disk space and writes the first state.
    """

    def __init__(self, directory: Path, state: ReplicaState) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self.state = state
        self.reserve = Reserve(directory)
        self.note()

    def note(self, **changes: Any) -> None:
        """Change fields of the state and write it. Once the process has exited, the phase stays."""
        with self._lock:
            if self.state.phase == "exited":
                changes.pop("phase", None)
            self.state = replace(self.state, **changes)
            self._write()

    def _write(self) -> None:
        """Write the state, using the reserve if the disk is full.

        A failure stops nothing: how the process ended is reported all the same.
        """
        try:
            self.state.write(self._directory)
        except OSError:
            self.reserve.release()
            try:
                self.state.write(self._directory)
            except OSError as error:
                sys.stderr.write(f"The state of this replica ({self.state.phase}) cannot be written: {error}.\n")
