"""A replica's own directories, in which user code runs."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

# A replica's own directories.
_REPLICA_DIRECTORIES = ("work", "output", "tmp")


def make_directories(directory: Path, bundle: Path | None) -> None:
    """Make the replica's own directories; ``work`` has a private copy of the code where the role runs user code.

    Platform roles get no copy: a file with the name of one of their modules would be imported instead.
    """
    for name in _REPLICA_DIRECTORIES:
        remove(directory / name)
    if bundle is None:
        (directory / "work").mkdir()
    else:
        shutil.copytree(bundle, directory / "work")
    (directory / "output").mkdir()
    (directory / "tmp").mkdir()


def chown_directories(directory: Path, uid: int) -> None:
    """Change the owner of the replica's own directories to ``uid``; no process runs there yet."""
    for name in _REPLICA_DIRECTORIES:
        os.chown(directory / name, uid, uid)
        for parent, directories, files in os.walk(directory / name):
            for each in (*directories, *files):
                os.chown(os.path.join(parent, each), uid, uid, follow_symlinks=False)  # noqa: PTH118


def remove(directory: Path) -> None:
    """Remove a directory, even parts that user code has made inaccessible. No process runs there any more."""
    with contextlib.suppress(OSError):
        for parent, directories, _files in os.walk(directory):
            for path in (Path(parent, name) for name in directories):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)
