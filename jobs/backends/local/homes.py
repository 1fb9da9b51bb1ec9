"""Homes of notebooks on this machine: who owns their files.

Notebooks of a namespace share a home, so their attempts have the same user id, where attempts have one. They cannot
reach one another's processes: each replica has process ids of its own.

    <data>/homes/<namespace id>/      the home
    <data>/homes/<namespace id>.uid   the user id
"""

from __future__ import annotations

import os
from pathlib import Path

DIRECTORY = "homes"


def uid_file(home: Path) -> Path:
    """Return the file with the user id of a home."""
    return home.with_name(f"{home.name}.uid")


def prepare(home: Path, uid: int | None) -> None:
    """Make the home, and give it with all its files to ``uid`` if another user owns it. Raises OSError."""
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.mkdir(exist_ok=True, mode=0o700)
    if uid is None or home.stat().st_uid == uid:
        return
    for parent, directories, files in os.walk(home):
        for each in (*directories, *files):
            os.chown(os.path.join(parent, each), uid, uid, follow_symlinks=False)  # noqa: PTH118
    # The home itself last: an interrupted call is repeated.
    os.chown(home, uid, uid)
