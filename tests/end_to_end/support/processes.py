"""Processes of this machine, read from /proc: their owner, and how to end them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str
    environment: dict[str, str]
    directory: str
    cgroups: str

    def belongs_to(self, directory: Path) -> bool:
        """Return whether it was started for that data directory, by its environment, working directory or arguments."""
        text = str(directory)
        return self.directory.startswith(text) or text in self.command or text in self.environment.values()


def running() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield _read(entry)


def _read(entry: Path) -> Process:
    stat = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    if stat[0] == "Z":
        raise ValueError("a zombie runs no more")
    variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
    environment = dict(variable.split("=", 1) for variable in variables if "=" in variable)
    command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
    directory, cgroups = str((entry / "cwd").readlink()), (entry / "cgroup").read_text(errors="replace")
    return Process(int(entry.name), int(stat[1]), command, environment, directory, cgroups)


def of(directory: Path) -> list[Process]:
    """Return all processes that were started for the data directory, except this one."""
    return [process for process in running() if process.belongs_to(directory) and process.pid != os.getpid()]


def of_attempt(directory: Path) -> list[Process]:
    """Return all processes of an attempt, by its directory.

    These are its agents, which work there; the processes in the cgroup of a replica; and what they have started,
    including launchers, which have neither variables nor a directory.
    """
    everything = list(running())
    found = {one.pid: one for one in everything if str(directory) in one.directory or directory.name in one.cgroups}
    while more := [one for one in everything if one.parent in found and one.pid not in found]:
        found.update((one.pid, one) for one in more)
    return list(found.values())


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
