"""The seam between the portal and where files are kept: a local directory or an S3-compatible store.

A key is a relative path with ``/`` between its parts (``artifacts/<job>/<attempt>/model.npz``). What is put under a key
is seen whole or not at all, however the writer ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

from portal.common.errors import NotFound, RegattaError

KEY_LIMIT = 300  # characters of a key; what the tables have room for
PART_LIMIT = 200  # bytes of one part; file systems allow 255, and the temporary name needs some


@dataclass(frozen=True)
class Stat:
    """What is kept under a key. ``size`` in bytes, ``sha256`` of the content in lower-case hexadecimal."""

    key: str
    size: int
    sha256: str


class StorageError(RegattaError):
    """The storage could not do what it was asked."""

    code = "storage_failed"
    status = 503


class StorageAway(StorageError):
    """The storage does not answer, or has too much to do. It may soon."""


class StorageFull(StorageError):
    """There is no room left."""

    code = "storage_full"
    status = 507


class BadKey(StorageError):
    """A key that no storage accepts."""

    code = "bad_key"
    status = 400


class KeyNotFound(NotFound):
    """Nothing is kept under the key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"The storage holds nothing under {key!r}. It may have been deleted.")
        self.key = key


class Storage(Protocol):
    """Keeps files under keys. Every method raises BadKey for a key that ``normalise`` refuses."""

    def put(self, key: str, stream: BinaryIO) -> Stat:
        """Keep what the stream gives until its end, in place of what was there. Raises StorageFull, StorageError."""

    def open(self, key: str, offset: int = 0) -> BinaryIO:
        """A reader of the content from byte ``offset`` on (empty beyond the end). Raises KeyNotFound, StorageError."""

    def stat(self, key: str) -> Stat:
        """Size and hash of the content. Raises KeyNotFound, StorageError."""

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """What lies below the directory ``prefix`` (all, if empty), by key in ascending order."""

    def delete(self, key: str) -> None:
        """Forget the key. Nothing happens where it is not there."""

    def staging(self) -> Path:
        """A directory on this machine in which files may grow that ``adopt`` then takes over; made if need be."""

    def adopt(self, key: str, path: Path, sha256: str) -> Stat:
        """Take over a file of this machine, whose SHA-256 the caller has made sure of; afterwards it is gone from
        ``path``. What is under the key already stays, and ``path`` then need not be there: a call that was cut off may
        be made again. Raises KeyNotFound where neither is there, StorageFull, StorageError."""

    def shelf(self) -> Path:
        """A directory on this machine in which ``place`` lays content out; made if need be. What is in it can be made
        again, and is its maker's to remove."""

    def place(self, key: str, path: Path) -> None:
        """Have the content at ``path``, a new file of the shelf, to be read only: a link to it where it lies, else a
        copy. Raises KeyNotFound, StorageFull, StorageError."""

    def signed_url(self, key: str, expires: timedelta) -> str | None:
        """An address from which anybody may read the key for a while, or None where the storage has no such thing."""


def normalise(key: str) -> str:
    """The one spelling of a key. Raises BadKey for what leaves the storage, is empty or too long, or hides."""
    parts = [part for part in key.split("/") if part not in ("", ".")]
    refused = next((why for test, why in _REFUSED if test(key, parts)), None)
    if refused:
        raise BadKey(f"{key[:80]!r} cannot be a key: {refused}.")
    return "/".join(parts)


_REFUSED = (
    (lambda key, parts: not parts, "it names nothing"),
    (lambda key, parts: key.startswith("/"), "it must be relative"),
    (lambda key, parts: ".." in parts, "'..' leads out of the storage"),
    (lambda key, parts: "\\" in key or not key.isprintable(), "it holds a backslash or an unprintable character"),
    (lambda key, parts: any(part.startswith(".") for part in parts), "a part begins with a dot"),
    (lambda key, parts: len(key) > KEY_LIMIT, f"it is longer than {KEY_LIMIT} characters"),
    (
        lambda key, parts: any(len(part.encode()) > PART_LIMIT for part in parts),
        "one of its parts is too long",
    ),
)
