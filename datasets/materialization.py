"""Layout of sealed versions on this machine, in the form that jobs read (``runtime.data.version_layout``).

Each version has its own root in the storage's shelf directory, ``version-<id>/<namespace>/<name>/``. A job sees the
root of its version and nothing else of the shelf. Files are links to the content if the storage supports it, else
copies. A root appears atomically, never changes, and can be created again at any time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from datasets.models import Version
from datasets.storage import default_storage
from runtime.data import version_layout

# Seconds that a caller waits for a layout in progress before it must call again.
PATIENCE = 2.0
# A root that was not requested for this long is removed, unless a job needs it.
UNUSED = timedelta(days=1)
_ROOT, _MAKING, _GOING = "version-", "making-", "going-"


def root_of(version_id: int) -> Path:
    """Return the directory that holds the version under its name, for the data path of a job."""
    return default_storage().shelf() / f"{_ROOT}{version_id}"


def prepare(version: Version, patience: float = PATIENCE) -> bool:
    """Lay out a sealed version. Return False while this is still in progress; then call again.

    Raises KeyNotFound, StorageFull, StorageError, OSError.
    """
    root = root_of(version.pk)
    if not _is_there(root):
        _LAYOUTS.of(version.pk, _layout(version, root).make, patience)
    return _is_there(root)


def _is_there(root: Path) -> bool:
    """Return whether the root exists. If it does, mark it as used now."""
    try:
        os.utime(root)
    except FileNotFoundError:
        return False
    return True


def _layout(version: Version, root: Path) -> _Layout:
    dataset = version.dataset
    files = version.files.filter(blob__isnull=False).values_list("path", "blob__key")
    place = f"{dataset.namespace.name}/{dataset.name}"
    return _Layout(root, place, version.manifest, version.format, tuple(files))


@dataclass(frozen=True)
class _Layout:
    """Data needed to lay out a version. ``files`` are pairs of path and key."""

    root: Path
    place: str
    manifest: str
    format: str
    files: tuple[tuple[str, str], ...]

    def make(self) -> None:
        """Lay out the version, unless another process does. Continues the work of a process that died."""
        making = self.root.with_name(self.root.name.replace(_ROOT, _MAKING))
        with _alone(making.with_suffix(".lock")) as alone:
            if alone and not self.root.is_dir():
                self._fill(making / self.place)
                making.replace(self.root)

    def _fill(self, folder: Path) -> None:
        storage = default_storage()
        files = folder / version_layout.FILES
        for path, key in self.files:
            target = files / path
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                storage.place(key, target)
        with storage.open(self.manifest) as stream:
            manifest = stream.read()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / version_layout.MANIFEST).write_bytes(manifest)
        described = version_layout.describe(json.loads(manifest), self.format)
        (folder / version_layout.VERSION).write_text(json.dumps(described), encoding="utf-8")


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Yield whether this process holds the lock exclusively."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        # Another process held the lock and has removed the file: a lock on an unlinked file excludes nobody.
        if not (lock.exists() and lock.stat().st_ino == os.fstat(file.fileno()).st_ino):
            yield False
            return
        yield True
        lock.unlink(missing_ok=True)


class _Layouts:
    """Layouts in progress in this process: one thread for each, each started once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Future[None]] = {}

    def of(self, version_id: int, make: Callable[[], None], patience: float) -> None:
        """Start the layout or wait for the one in progress, for at most ``patience`` seconds. Raises what ``make``
        raises."""
        with self._lock:
            future = self._running.get(version_id)
            if future is None or future.done():  # a finished one that no caller waited for
                future = self._running[version_id] = Future()
                _start(make, future)
        try:
            future.result(patience)
        except TimeoutError:
            if not future.done():
                return
            raise
        finally:
            if future.done():
                with self._lock:
                    self._running.pop(version_id, None)


def _start(make: Callable[[], None], future: Future[None]) -> None:
    """Start a thread. If none is available, the layout fails and the next caller starts it again."""
    try:
        threading.Thread(target=_run, args=(make, future), daemon=True).start()
    except RuntimeError as shortage:
        future.set_exception(OSError(errno.EAGAIN, str(shortage)))


def _run(make: Callable[[], None], future: Future[None]) -> None:
    try:
        make()
    except Exception as error:  # noqa: BLE001  every exception is raised to the caller
        future.set_exception(error)
    else:
        future.set_result(None)


_LAYOUTS = _Layouts()


# --- Clean-up --------------------------------------------------------------------------------------------------------
def clear(now: datetime, needed: Collection[int]) -> int:
    """Remove roots that are not needed and were not requested lately, and partial layouts. Return their number."""
    shelf = default_storage().shelf()
    kept = {f"{prefix}{version_id}" for version_id in needed for prefix in (_ROOT, _MAKING)}
    folders = [path for path in shelf.iterdir() if path.name.startswith((_ROOT, _MAKING, _GOING)) and path.is_dir()]
    return sum(_remove(path, now - UNUSED) for path in folders if path.name not in kept)


def _remove(root: Path, before: datetime) -> bool:
    """Remove a root. It is renamed first, so that nobody finds part of it, and renamed back if it was used
    meanwhile."""
    going = root if root.name.startswith(_GOING) else root.with_name(f"{_GOING}{root.name}")
    try:
        if _used(root) >= before:
            return False
        root.replace(going)
        if _used(going) >= before:
            going.replace(root)
            return False
    except OSError:
        return False
    shutil.rmtree(going, ignore_errors=True)
    return True


def _used(root: Path) -> datetime:
    return datetime.fromtimestamp(root.stat().st_mtime, UTC)
