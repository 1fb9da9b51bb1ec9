"""Cgroup (version 2) of one replica: one write ends all its processes, and the kernel enforces its limits.

Only the replica's own processes are in it; its agent is outside. No process can leave it, because a job sees no file of
the cgroup file system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection
from pathlib import Path

MEMORY, PIDS = "memory", "pids"
_AGAIN_SECONDS, _END_SECONDS = 0.01, 5.0
# The agent counts processes and reports the reason. The kernel's limit is for processes that start between two counts.
_PROCESSES = 2


def make(path: Path, memory: int, processes: int, controllers: Collection[str]) -> None:
    """Create an empty cgroup with limits for the available controllers (bytes, processes and threads; 0: none).

    A cgroup that an interrupted start has left is ended first. Raises OSError.
    """
    end(path)
    path.mkdir()
    try:
        if memory and MEMORY in controllers:
            write(path / "memory.max", str(memory))
            # Kill all processes together: a job that has lost one of its processes may wait for it for ever.
            write(path / "memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # the kernel does not account swap
                write(path / "memory.swap.max", "0")
        if processes and PIDS in controllers:
            write(path / "pids.max", str(_PROCESSES * processes))
    except OSError:
        path.rmdir()
        raise


def entrance(path: Path) -> int:
    """Return a descriptor: a process that writes 0 to it is moved into the cgroup. Raises OSError."""
    return os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)


def enter(entrance: int) -> None:
    """Move this process, and those that it will start, into the cgroup. Raises OSError."""
    os.write(entrance, b"0")


def kill(path: Path) -> None:
    """Kill every process in the cgroup, also one that is just being forked. Raises OSError if the write fails."""
    write(path / "cgroup.kill", "1")


def end(path: Path) -> None:
    """Kill the processes in the cgroup and remove it. A missing cgroup counts as ended.

    Raises OSError if something is left.
    """
    deadline = time.monotonic() + _END_SECONDS
    try:
        while True:
            kill(path)
            try:
                path.rmdir()
                return
            except OSError as error:
                # Killed processes need a moment to end.
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_SECONDS)
    except OSError as error:
        # ENODEV: it was removed between two calls.
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def killed_for_memory(path: Path) -> bool:
    """Return whether the kernel has killed processes in the cgroup because of its memory limit."""
    try:
        lines = (path / "memory.events").read_text(encoding="ascii").splitlines()
    except OSError:
        return False  # no limit was set
    return any(name == "oom_kill" and int(count) > 0 for name, _, count in (line.partition(" ") for line in lines))


def write(path: Path, text: str) -> None:
    """Write to a file of the kernel, which this function never creates."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
