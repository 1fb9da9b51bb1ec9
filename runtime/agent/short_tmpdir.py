"""A short name for a replica's own temporary directory.

Programs put sockets there (Python's multiprocessing does), and the kernel takes no socket's name of more than 107
bytes: the directory of an attempt in a data directory of usual depth leaves no room. A link with a short name does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

# What programs add to it: "/pymp-abcdefgh/listener-abcdefgh", and as much again.
LONGEST = 107 - 64
_PREFIX = "rg-"


def make(directory: Path) -> Path:
    """A name of the directory that is short enough; its own, where that is, or where none can be given to it."""
    if len(str(directory)) <= LONGEST:
        return directory
    _remove_left_behind()
    link = _link(directory)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            link.symlink_to(directory)
        # Others may write here too: what is not our link is not used.
        if link.readlink() == directory:
            return link
    return directory


def remove(directory: Path) -> None:
    """Take the name back, if it is the directory's."""
    link = _link(directory)
    with contextlib.suppress(OSError):
        if link.readlink() == directory:
            link.unlink()


def _remove_left_behind() -> None:
    """Take back the names that our agents gave to directories that are gone: whoever is killed removes nothing."""
    for link in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if link.is_symlink() and not link.exists() and link.lstat().st_uid == os.getuid():
                link.unlink()


def _link(directory: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{hashlib.sha256(bytes(directory)).hexdigest()[:12]}"
