"""Interface of the file storage: a local directory or an S3-compatible store.

A key is a relative path with ``/`` between its parts (``artifacts/<job>/<attempt>/model.npz``). The content of a key
appears completely or not at all, even if the writer crashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

from datasets import messages
from portal.common.errors import NotFound, RegattaError

KEY_LIMIT = 300  # maximum length of a key in characters, as in the database columns
PART_LIMIT = 200  # maximum length of one part in bytes; file systems allow 255, and the temporary name needs some


@dataclass(frozen=True)
class Stat:
    """Metadata of a key. ``size`` is in bytes, ``sha256`` is that of the content in lower-case hexadecimal."""

    key: str
    size: int
    sha256: str


class StorageError(RegattaError):
    """The storage could not perform the operation."""

    code = "storage_failed"
    status = 503


class StorageAway(StorageError):
    """The storage is unreachable or overloaded. A retry may succeed."""


class StorageFull(StorageError):
    """The storage has no free space."""

    code = "storage_full"
    status = 507


class BadKey(StorageError):
    """The key is invalid for every storage."""

    code = "bad_key"
    status = 400


class KeyNotFound(NotFound):
    """The storage has no content under the key."""

    def __init__(self, key: str) -> None:
        super().__init__(messages.STORAGE_KEY_NOT_FOUND(key=f"{key!r}"))
        self.key = key


class Storage(Protocol):
    """Stores files under keys. Every method raises BadKey for a key that ``normalise`` refuses."""

    def put(self, key: str, stream: BinaryIO) -> Stat:
        """Store the stream's content, replacing what was there. Raises StorageFull, StorageError."""

    def open(self, key: str, offset: int = 0) -> BinaryIO:
        """Return a reader of the content from byte ``offset`` (empty beyond the end). Raises KeyNotFound,
        StorageError."""

    def stat(self, key: str) -> Stat:
        """Return size and hash of the content. Raises KeyNotFound, StorageError."""

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Yield the contents of the directory ``prefix`` (everything if empty), by key in ascending order."""

    def delete(self, key: str) -> None:
        """Delete the key. A missing key is not an error."""

    def staging(self) -> Path:
        """Return a directory on this machine for files that ``adopt`` takes over later. Creates it if necessary."""

    def adopt(self, key: str, path: Path, sha256: str) -> Stat:
        """Move a file of this machine into the storage. The caller has verified its SHA-256.

        ``path`` no longer exists afterwards. Content that is already under the key stays; ``path`` then need not exist,
        so that an interrupted call can be repeated. Raises KeyNotFound if neither exists, StorageFull, StorageError.
        """

    def shelf(self) -> Path:
        """Return a directory on this machine in which ``place`` lays out content. Creates it if necessary.

        Its contents can be created again. The caller of ``place`` removes them.
        """

    def place(self, key: str, path: Path) -> None:
        """Provide the content at ``path``, a new read-only file in the shelf: a link if possible, else a copy.

        Raises KeyNotFound, StorageFull, StorageError.
        """

    def signed_url(self, key: str, expires: timedelta) -> str | None:
        """Return a temporary public URL of the key, or None if the storage has none."""


def normalise(key: str) -> str:
    """Return the canonical spelling of a key. Raises BadKey if it leaves the storage, is empty, too long or hidden."""
    parts = [part for part in key.split("/") if part not in ("", ".")]
    refused = next((why for test, why in _REFUSED if test(key, parts)), None)
    if refused:
        raise BadKey(f"{key[:80]!r} cannot be a key: {refused}.")
    return "/".join(parts)


_REFUSED = (
    (lambda key, parts: not parts, "it names nothing"),
    (lambda key, parts: key.startswith("/"), messages.PATH_NOT_RELATIVE()),
    (lambda key, parts: ".." in parts, "'..' leads out of the storage"),
    (lambda key, parts: "\\" in key or not key.isprintable(), "it holds a backslash or an unprintable character"),
    (lambda key, parts: any(part.startswith(".") for part in parts), "a part begins with a dot"),
    (lambda key, parts: len(key) > KEY_LIMIT, messages.PATH_TOO_LONG(count=KEY_LIMIT)),
    (
        lambda key, parts: any(len(part.encode()) > PART_LIMIT for part in parts),
        "one of its parts is too long",
    ),
)
