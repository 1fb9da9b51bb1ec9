"""Short name for a replica's own temporary directory.

Programs put sockets there (Python's multiprocessing does), and the kernel accepts socket names of at most 107 bytes.
The directory of an attempt in a data directory of usual depth is too long. A link with a short name is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

# Programs append "/pymp-abcdefgh/listener-abcdefgh"; as much again is reserved.
LONGEST = 107 - 64
_PREFIX = "rg-"


def make(directory: Path) -> Path:
    """Return a short enough name of the directory: its own if that is short, or if no link can be created."""
    if len(str(directory)) <= LONGEST:
        return directory
    _remove_left_behind()
    link = _link(directory)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            link.symlink_to(directory)
        # Other users may write here too: a link that is not ours is not used.
        if link.readlink() == directory:
            return link
    return directory


def remove(directory: Path) -> None:
    """Remove the link, if it leads to the directory."""
    link = _link(directory)
    with contextlib.suppress(OSError):
        if link.readlink() == directory:
            link.unlink()


def _remove_left_behind() -> None:
    """Remove our links to directories that are gone: an agent that is killed removes nothing."""
    for link in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if link.is_symlink() and not link.exists() and link.lstat().st_uid == os.getuid():
                link.unlink()


def _link(directory: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{hashlib.sha256(bytes(directory)).hexdigest()[:12]}"
