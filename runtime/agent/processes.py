"""All that a process has started: counted, measured, and ended for sure.

The agent is the subreaper of its tree: whoever loses its parent, a double-forked daemon too, becomes the agent's child
and so stays in sight.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Census:
    """What lives below a process: processes and threads together, and the bytes of memory that they hold.

    Pages that a process still shares with its fork are counted for each; ``shared_out`` knows better and costs more.
    """

    tasks: int
    memory: int


def descendants(root: int) -> Iterator[int]:
    """The processes below ``root``, parents first. A process that ends meanwhile may or may not be among them."""
    waiting = [root]
    while waiting:
        children = _children(waiting.pop())
        yield from children
        waiting.extend(children)


def census(root: int, enough: int = 0) -> Census:
    """Count what lives below ``root``; looks no further once there are more tasks than ``enough`` (0: no bound)."""
    tasks = memory = 0
    for pid in descendants(root):
        tasks += _threads(pid)
        memory += _private_bytes(pid)
        if enough and tasks > enough:
            break
    return Census(tasks, memory)


def shared_out(root: int) -> int:
    """The bytes of memory that live below ``root``, with every shared page divided among those who share it."""
    return sum(_proportional_bytes(pid) for pid in descendants(root))


def start_ticks(pid: int) -> int:
    """When the kernel started the process, in its ticks since boot. Raises ProcessLookupError."""
    return int(_stat(pid)[19])


def reap() -> dict[int, int]:
    """Collect the children of this process that have ended: pid to wait status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (answer := os.waitpid(-1, os.WNOHANG))[0]:
            ended[answer[0]] = answer[1]
    return ended


def kill_all(group: int) -> dict[int, int]:
    """Kill the process group and everything below this process until nothing is left; pid to wait status.

    The kernel lets no member of a group fork while a signal to the group is delivered, so a fork bomb ends with the
    first call. Those that left the group are hunted until none is found.
    """
    ended = {}
    me = os.getpid()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while pids := list(descendants(me)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            # At least one direct child is dying: wait for it instead of asking again and again.
            pid, status = os.waitpid(-1, 0)
            ended[pid] = status
        ended.update(reap())
    return ended


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.extend(map(int, (thread / "children").read_bytes().split()))
    return found


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the third on; the second, the name, may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        raise ProcessLookupError(pid) from None


def _threads(pid: int) -> int:
    try:
        return max(1, int(_stat(pid)[17]))
    except ProcessLookupError:
        return 0


def _private_bytes(pid: int) -> int:
    """Resident memory without pages of files."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_bytes().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        # It has ended, or this kernel does not tell.
        pass
    return _private_bytes(pid)
