"""Storage in a local directory: one file per key, plus a temporary file while it is written.

Hashes are requested more often than content is written, so they are cached in ``.sums/<key>``, together with the size
and modification time for which they hold. If that file is lost, the content is read once more.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from datasets import messages
from datasets.storage.base import KeyNotFound, Stat, StorageAway, StorageError, StorageFull, normalise
from runtime.errors import TEMPORARY

_CHUNK = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_SUMS = ".sums"
_STAGING = ".staging"
_SHELF = ".shelf"
# The file system has no links, or allows no more links to this file.
_NO_LINK = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP})


class LocalStorage:
    """Stores files below ``root``, which is created on the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, stream: BinaryIO) -> Stat:
        key = normalise(key)
        path = self.root / key
        with _storage_errors(key, messages.WRITTEN()):
            path.parent.mkdir(parents=True, exist_ok=True)
            size, digest, modified = _write_atomically(path, stream)
            stat = Stat(key, size, digest)
            self._remember(stat, modified)
        return stat

    def open(self, key: str, offset: int = 0) -> BinaryIO:
        key = normalise(key)
        with _storage_errors(key, messages.READ()):
            file = (self.root / key).open("rb")
        file.seek(offset)
        return file

    def stat(self, key: str) -> Stat:
        key = normalise(key)
        with _storage_errors(key, messages.READ()):
            return self._remembered(key) or self._measure(key)

    def list(self, prefix: str = "") -> Iterator[Stat]:
        start = self.root / normalise(prefix) if prefix.strip("/") else self.root
        keys = [path.relative_to(self.root).as_posix() for path in start.rglob("*") if path.is_file()]
        for key in sorted(key for key in keys if not _hidden(key)):
            # Deleted while the directory is read: not part of the list.
            with contextlib.suppress(KeyNotFound):
                yield self.stat(key)

    def delete(self, key: str) -> None:
        key = normalise(key)
        with _storage_errors(key, messages.DELETED()), contextlib.suppress(*_MISSING):
            (self.root / key).unlink()
        with _storage_errors(key, messages.DELETED()), contextlib.suppress(*_MISSING):
            (self.root / _SUMS / key).unlink()

    def staging(self) -> Path:
        folder = self.root / _STAGING
        with _storage_errors(_STAGING, messages.WRITTEN()):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def adopt(self, key: str, path: Path, sha256: str) -> Stat:
        key = normalise(key)
        target = self.root / key
        if target.is_file():
            path.unlink(missing_ok=True)
            return self.stat(key)
        if not path.exists():
            raise KeyNotFound(key)
        with _storage_errors(key, messages.WRITTEN()):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                found = _move(path, target)
            except FileNotFoundError:
                if not target.is_file():
                    raise
                return self.stat(key)  # another caller was faster
            stat = Stat(key, found.st_size, sha256)
            self._remember(stat, found.st_mtime_ns)
        return stat

    def shelf(self) -> Path:
        folder = self.root / _SHELF
        with _storage_errors(_SHELF, messages.WRITTEN()):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def place(self, key: str, path: Path) -> None:
        source = self.root / normalise(key)
        if not source.is_file():
            raise KeyNotFound(key)
        with _storage_errors(key, "laid out"):
            try:
                path.hardlink_to(source)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                _copy_atomically(source, path)

    def signed_url(self, key: str, expires: timedelta) -> str | None:
        normalise(key)
        return None

    def _remember(self, stat: Stat, modified: int) -> None:
        note = self.root / _SUMS / stat.key
        note.parent.mkdir(parents=True, exist_ok=True)
        body = json.dumps({"size": stat.size, "sha256": stat.sha256, "modified": modified}).encode()
        _replace(note, body)

    def _remembered(self, key: str) -> Stat | None:
        found = (self.root / key).stat()
        try:
            note: dict[str, Any] = json.loads((self.root / _SUMS / key).read_bytes())
            if (note["size"], note["modified"]) == (found.st_size, found.st_mtime_ns):
                return Stat(key, found.st_size, note["sha256"])
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return None

    def _measure(self, key: str) -> Stat:
        with (self.root / key).open("rb") as file:
            modified = os.fstat(file.fileno()).st_mtime_ns
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            stat = Stat(key, file.tell(), digest)
        self._remember(stat, modified)
        return stat


def _hidden(key: str) -> bool:
    return key.startswith(".") or "/." in key


@contextlib.contextmanager
def _storage_errors(key: str, verb: str) -> Iterator[None]:
    """Translate errors of the file system into errors of the storage."""
    try:
        yield
    except _MISSING as error:
        if verb == "read":
            raise KeyNotFound(key) from None
        raise StorageError(
            messages.STORAGE_OPERATION_FAILED_MISSING(key=f"{key!r}", operation=verb, why=error.strerror)
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(messages.STORAGE_DISK_FULL(key=f"{key!r}", operation=verb)) from error
        kind = StorageAway if error.errno in TEMPORARY else StorageError
        why = error.strerror or error
        raise kind(messages.STORAGE_OPERATION_FAILED(key=f"{key!r}", operation=verb, why=why)) from error


def _write_atomically(path: Path, stream: BinaryIO) -> tuple[int, str, int]:
    """Write the stream to a temporary file and rename it. Return size, SHA-256 and modification time (ns)."""
    descriptor, temporary = tempfile.mkstemp(prefix=".put-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            size, digest = _copy(stream, cast(BinaryIO, file))
            file.flush()
            os.fsync(file.fileno())
            modified = os.fstat(file.fileno()).st_mtime_ns
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    return size, digest, modified


def _copy_atomically(source: Path, path: Path) -> None:
    """Copy a file and rename it once it is complete: a partial copy would be taken for the file."""
    draft = path.with_name(f".{path.name[:100]}-{os.getpid()}")
    try:
        shutil.copyfile(source, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _move(path: Path, target: Path) -> os.stat_result:
    """Move a complete file into place. Its content is synced to disk before it is renamed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        found = os.fstat(file.fileno())
    path.replace(target)
    _sync_directory(target.parent)
    return found


def _copy(source: BinaryIO, target: BinaryIO) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while chunk := source.read(_CHUNK):
        target.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _replace(path: Path, body: bytes) -> None:
    """Replace a small file atomically. It may be lost in a power cut, because it can be created again."""
    descriptor, temporary = tempfile.mkstemp(prefix=".put-", dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    Path(temporary).replace(path)


def _sync_directory(path: Path) -> None:
    """Sync a directory: a rename survives a power cut only after that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
