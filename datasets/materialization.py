"""Sealed versions laid out on this machine, as the processes of a job read them (``runtime.data.version_layout``).

Each version has a root of its own below the storage's shelf, ``version-<id>/<namespace>/<name>/``; a job is shown the
root of its version and nothing else of the shelf. Where the storage can, files are links to where the content lies;
else they are copies. A root is seen whole or not at all, never changes, and can be made again at any time.
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

# For how long whoever asks waits for what is being laid out before they are told to ask again.
PATIENCE = 2.0
# A root that nobody has asked for since is removed, unless a job needs it.
UNUSED = timedelta(days=1)
_ROOT, _MAKING, _GOING = "version-", "making-", "going-"


def root_of(version_id: int) -> Path:
    """The directory that holds the version by its name; for the data path of a job."""
    return default_storage().shelf() / f"{_ROOT}{version_id}"


def prepare(version: Version, patience: float = PATIENCE) -> bool:
    """Have a sealed version laid out; False while that still goes on, and then it is to be asked again.

    Raises KeyNotFound, StorageFull, StorageError, OSError.
    """
    root = root_of(version.pk)
    if not _is_there(root):
        _LAYOUTS.of(version.pk, _layout(version, root).make, patience)
    return _is_there(root)


def _is_there(root: Path) -> bool:
    """Whether it is there; and if so, it has been used now."""
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
    """All that is needed to lay a version out. ``files`` are paths and keys."""

    root: Path
    place: str
    manifest: str
    format: str
    files: tuple[tuple[str, str], ...]

    def make(self) -> None:
        """Lay it out, unless another process does. Goes on where one that died had come to."""
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
    """Whether this process holds the lock, and no other."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        # Another process was alone with it and has removed it: the lock of a file without a name keeps nobody out.
        if not (lock.exists() and lock.stat().st_ino == os.fstat(file.fileno()).st_ino):
            yield False
            return
        yield True
        lock.unlink(missing_ok=True)


class _Layouts:
    """What this process is laying out, each in a thread of its own, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Future[None]] = {}

    def of(self, version_id: int, make: Callable[[], None], patience: float) -> None:
        """Begin it, or look on, for ``patience`` seconds at most. Raises what ``make`` raises."""
        with self._lock:
            future = self._running.get(version_id)
            if future is None or future.done():  # one that nobody waited for to its end
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
    """Where there is no thread for it now, it has failed: whoever asks again begins it anew."""
    try:
        threading.Thread(target=_run, args=(make, future), daemon=True).start()
    except RuntimeError as shortage:
        future.set_exception(OSError(errno.EAGAIN, str(shortage)))


def _run(make: Callable[[], None], future: Future[None]) -> None:
    try:
        make()
    except Exception as error:  # noqa: BLE001  whoever asked is told
        future.set_exception(error)
    else:
        future.set_result(None)


_LAYOUTS = _Layouts()


# --- Clean-up --------------------------------------------------------------------------------------------------------
def clear(now: datetime, needed: Collection[int]) -> int:
    """Remove the roots that nobody needs and nobody has asked for lately, and what was left half made; how many."""
    shelf = default_storage().shelf()
    kept = {f"{prefix}{version_id}" for version_id in needed for prefix in (_ROOT, _MAKING)}
    folders = [path for path in shelf.iterdir() if path.name.startswith((_ROOT, _MAKING, _GOING)) and path.is_dir()]
    return sum(_remove(path, now - UNUSED) for path in folders if path.name not in kept)


def _remove(root: Path, before: datetime) -> bool:
    """Out of the way first, so that nobody finds half of it. Who used it at the last moment gets it back."""
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
