"""Artifacts: the files that a process left in its output directory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlencode

LARGEST_COUNT = 1000
LARGEST_TOTAL = 2 * 1024**3
LONGEST_NAME = 200
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Found:
    """A regular file below the output directory. ``name`` is its relative path, with ``/``."""

    name: str
    path: Path
    size: int


@dataclass(frozen=True)
class Selection:
    """The files to upload, and a message for each kind of file that is left out."""

    files: tuple[Found, ...]
    left_out: tuple[str, ...]


def select(directory: Path) -> Selection:
    """Return the regular files below ``directory`` in order of their names, as many as the limits allow.

    Links are not followed: they could lead to files that the process may not read.
    """
    chosen: list[Found] = []
    unfit: list[Found] = []
    left_over: list[Found] = []
    unread: list[OSError] = []
    total = 0
    for found in sorted(_regular_files(directory, unread), key=lambda found: found.name):
        if not _fits(found.name):
            unfit.append(found)
        elif len(chosen) == LARGEST_COUNT or total + found.size > LARGEST_TOTAL:
            left_over.append(found)
        else:
            chosen.append(found)
            total += found.size
    return Selection(tuple(chosen), (*_unfit_names(unfit), *_too_much(left_over), *_unlisted(unread)))


def call(replica: str, found: Found, digest: str, fence: Mapping[str, int]) -> str:
    return "artifacts?" + urlencode({"replica": replica, "name": found.name, "sha256": digest, **fence})


def sha256(file: BinaryIO) -> str:
    """Return the digest of the whole file, and seek back to its start."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest()


@contextmanager
def opened(found: Found) -> Iterator[BinaryIO]:
    """Open the file for reading. Raises OSError, also if a link has taken its place."""
    with os.fdopen(os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        yield file


def _regular_files(directory: Path, unread: list[OSError]) -> Iterator[Found]:
    """Yield the regular files.

    ``unread`` collects the errors of entries that cannot be listed, such as too deep paths.
    """
    for parent, directories, names in os.walk(directory, onerror=unread.append, followlinks=False):
        directories.sort()
        for name in names:
            path = Path(parent, name)
            try:
                status = path.lstat()
            except OSError as error:
                unread.append(error)
                continue
            if stat.S_ISREG(status.st_mode):
                yield Found(path.relative_to(directory).as_posix(), path, status.st_size)


def _fits(name: str) -> bool:
    """Return whether the portal accepts the name. A name that is not UTF-8 holds unprintable characters, too."""
    return len(name) <= LONGEST_NAME and name.isprintable() and "\\" not in name


def _too_much(left_over: Sequence[Found]) -> Iterator[str]:
    if left_over:
        limit = f"a replica may leave {LARGEST_COUNT:,} files and {LARGEST_TOTAL // 1024**3} GiB"
        yield f"{_count(left_over)} not kept, {left_over[0].name} the first of them: {limit}"


def _unfit_names(unfit: Sequence[Found]) -> Iterator[str]:
    if unfit:
        rule = f"a path has at most {LONGEST_NAME} characters, all of which can be shown, and no backslash"
        yield f"{_count(unfit)} not kept because of the name: {rule}"


def _unlisted(errors: Sequence[OSError]) -> Iterator[str]:
    if errors:
        name = os.path.basename(str(errors[0].filename))[-LONGEST_NAME:]  # noqa: PTH119  a path has no maximum length
        shown = name.encode("utf-8", "replace").decode()
        yield f"files are not kept because {shown!r} cannot be read: {errors[0].strerror}"


def _count(files: Sequence[Found]) -> str:
    return f"{len(files):,} file is" if len(files) == 1 else f"{len(files):,} files are"
