"""A user id for each attempt, from a range reserved for jobs; never one that another attempt still has.

Attempts with the same home (``homes``) have the same user id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from jobs.backends.local import homes

UID_FILE = "uid"
_LOCK, _LAST = "uids.lock", "uids.last"


def of(attempt: Path, allowed: range, home: Path | None = None) -> int:
    """Return the user id of the attempt, whose directory exists. Raises OSError if all ids are taken.

    The id is chosen once and stays assigned until the directory is removed. That of a home is never assigned again.
    """
    with (attempt.parent / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (known := _read(attempt / UID_FILE)) is not None:
            return known
        chosen = _read(homes.uid_file(home)) if home else None
        if chosen is None or chosen not in allowed:
            chosen = _choose(attempt.parent, allowed)
            # The last id is written first, so that an id that was cleaned up is not chosen next.
            _write(attempt.parent / _LAST, chosen)
            if home is not None:
                home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(homes.uid_file(home), chosen)
        _write(attempt / UID_FILE, chosen)
        return chosen


def _choose(attempts: Path, allowed: range) -> int:
    files = [*attempts.glob(f"*/{UID_FILE}"), *(attempts.absolute().parent / homes.DIRECTORY).glob("*.uid")]
    taken = {_read(path) for path in files} | set(_owners_of_processes())
    last = _read(attempts / _LAST)
    begin = allowed.index(last) + 1 if last is not None and last in allowed else 0
    for step in range(len(allowed)):
        candidate = allowed[(begin + step) % len(allowed)]
        if candidate not in taken:
            return candidate
    raise OSError(f"all {len(allowed):,} user ids of REGATTA_LOCAL_UIDS are taken")


def _owners_of_processes() -> Iterator[int]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                yield process.stat().st_uid


def _read(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return int(path.read_text(encoding="ascii"))
    return None


def _write(path: Path, uid: int) -> None:
    """Replace the file atomically. Called under the lock."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(str(uid), encoding="ascii")
    os.replace(fresh, path)  # noqa: PTH105
