"""Signals to the processes of one agent: those of its session, and those with its work directory in the environment.

Needed where the agent cannot end its own processes: it was killed, or does not answer. Reads Linux's /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from runtime import contract

_PARENT, _SESSION, _START = 1, 3, 19  # fields of /proc/<pid>/stat after the name


def signal_leader(pid: int, ticks: int, number: int) -> None:
    """Send a signal to the agent if ``pid`` is still the process that started at ``ticks``."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if int(_stat(pid)[_START]) == ticks:
            os.kill(pid, number)


def kill(leader: int, ticks: int, directory: Path) -> None:
    """Kill every process of the agent's session and those with its work directory in their environment."""
    for pid in list(_belonging(None if _reused(leader, ticks) else leader, directory)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_children(pid: int, ticks: int) -> None:
    """Kill the children of the agent if ``pid`` is still the process that started at ``ticks``; the agent goes on."""
    if _reused(pid, ticks):
        return
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if entry.name.isdigit() and int(_stat(int(entry.name))[_PARENT]) == pid:
                os.kill(int(entry.name), signal.SIGKILL)


def collect(pid: int) -> None:
    """Reap the process if it is a child of this process and has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _reused(pid: int, ticks: int) -> bool:
    """Whether the process id now belongs to a process that started later."""
    with contextlib.suppress(ProcessLookupError):
        return int(_stat(pid)[_START]) != ticks
    return False


def _belonging(leader: int | None, directory: Path) -> Iterator[int]:
    mark = f"{contract.WORK_DIR}={directory / 'work'}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _belongs(int(entry.name), leader, mark):
            yield int(entry.name)


def _belongs(pid: int, leader: int | None, mark: bytes) -> bool:
    with contextlib.suppress(ProcessLookupError):
        if int(_stat(pid)[_SESSION]) == leader:
            return True
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat from the third on; the second, the name, may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        raise ProcessLookupError(pid) from None
