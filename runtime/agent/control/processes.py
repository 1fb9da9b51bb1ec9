"""Processes of a replica as /proc shows them: state, threads, and the memory file of ``runtime.inspection.inside``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runtime.agent import process_tree
from runtime.agent.child_process import Child
from runtime.agent.process_tree import Unmeasurable
from runtime.inspection import inside

PROCESSES, TASKS = 64, 256
_DESCRIPTORS = 4096
_STOPPED = "Tt"


@dataclass(frozen=True)
class Process:
    """``pid`` as the agent sees it, ``inner`` as the process does. ``resident``: bytes. ``caught``: a signal mask."""

    pid: int
    inner: int
    name: str
    state: str
    resident: int
    caught: int

    @property
    def is_stopped(self) -> bool:
        return self.state in _STOPPED


def of(child: Child, most: int = PROCESSES) -> list[Process]:
    """Return at most so many processes of the replica, parents first. Those that end during the call are left out."""
    roots = [child.pid] if child.init is None else []
    below = child.pid if child.init is None else child.init
    with contextlib.suppress(Unmeasurable):
        roots += islice(process_tree.descendants(below), most)
    return [found for pid in roots if (found := read(pid)) is not None]


def read(pid: int) -> Process | None:
    """Return the process, or None if it has ended."""
    try:
        with Path(f"/proc/{pid}/status").open(encoding="utf-8", errors="replace") as file:
            fields = dict(line.rstrip("\n").partition(":\t")[::2] for line in file)
        state = fields["State"].strip()[:1]
        if state in "ZX":
            return None
        resident = int(fields.get("VmRSS", "0 kB").split()[0]) * 1024
        inner = int(fields["NSpid"].split()[-1])
        return Process(pid, inner, fields["Name"], state, resident, int(fields["SigCgt"], 16))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def tasks(pid: int) -> Iterator[tuple[int, int, str]]:
    """Yield the process's threads: the number here, the number inside, and the name that the kernel has."""
    with contextlib.suppress(OSError):
        for task in islice(sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)), TASKS):
            with contextlib.suppress(OSError, ValueError, IndexError):
                status = (task / "status").read_text(encoding="utf-8", errors="replace")
                inner = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
                yield int(task.name), int(inner), (task / "comm").read_text(encoding="utf-8", errors="replace").strip()


def memory_file(process: Process) -> Path | None:
    """Return the path of the file into which ``inside.SIGNAL`` makes the process write its stacks.

    None if the process has no handler, or has closed the file: the signal would end it, or write elsewhere.
    """
    if not process.caught >> (inside.SIGNAL - 1) & 1:
        return None
    with contextlib.suppress(OSError):
        for descriptor in islice(Path(f"/proc/{process.pid}/fd").iterdir(), _DESCRIPTORS):
            with contextlib.suppress(OSError):
                if is_memory_file(descriptor, descriptor.name):
                    return descriptor
    return None


def is_memory_file(descriptor: Path, number: str) -> bool:
    """Return whether the descriptor is of a file that is named after this number. Raises OSError."""
    return os.readlink(descriptor) == f"/memfd:{inside.MEMORY_FILE_PREFIX}{number} (deleted)"  # noqa: PTH115


def send_signal(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, inside.SIGNAL)
