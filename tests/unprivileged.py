"""Runs a command as an ordinary user, from tests that run as root: ``python -m tests.unprivileged COMMAND...``.

The interpreter may be in a directory that only root may enter. In a separate mount namespace, such directories are
replaced by ones that contain only the path to the interpreter and the project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from runtime.isolation import syscalls

UID = 65534
PROJECT = Path(__file__).resolve().parent.parent


def main(command: list[str]) -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    open_up([sys.prefix, sys.base_prefix, str(PROJECT)])
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.execvp(command[0], command)


def open_up(paths: Iterable[str]) -> None:
    """Make all paths accessible to others."""
    closed: dict[str, list[str]] = {}
    for path in paths:
        if (wall := _first_closed(Path(path).resolve())) is not None:
            closed.setdefault(str(wall), []).append(str(Path(path).resolve()))
    for wall, inside in closed.items():
        trees = [(path, syscalls.clone_tree(path)) for path in inside]
        syscalls.mount("tmpfs", wall, "tmpfs", 0, "mode=755")
        for path, tree in trees:
            Path(path).mkdir(parents=True, exist_ok=True)
            syscalls.attach(tree, path)


def _first_closed(path: Path) -> Path | None:
    return next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None)


if __name__ == "__main__":
    main(sys.argv[1:])
