"""Code snapshots: the files of a submission, stored once by content hash as a deterministic archive."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from datasets.storage import default_storage
from datasets.storage.base import KeyNotFound
from jobs.models import CodeSnapshot


def key_of(digest: str) -> str:
    """Return the key of a snapshot in the storage."""
    return f"snapshots/{digest[:2]}/{digest}.tar.z"


def archive(files: Mapping[str, str]) -> bytes:
    """Return a tar archive whose bytes depend on the paths and texts alone."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            body = files[path].encode()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(body), 0o644, 0
            tar.addfile(entry, io.BytesIO(body))
    return target.getvalue()


def unpack(body: bytes) -> dict[str, str]:
    """Return the files of an archive: path to text."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            if content is not None:
                files[entry.name] = content.read().decode()
    return files


@dataclass(frozen=True)
class Packed:
    """Archive of a submission's files, and its SHA-256."""

    digest: str
    body: bytes


def pack(files: Mapping[str, str]) -> Packed:
    body = archive(files)
    return Packed(hashlib.sha256(body).hexdigest(), body)


def keep(code: Packed) -> None:
    """Put the archive into the storage unless it is there. Makes no database query."""
    storage = default_storage()
    try:
        storage.stat(key_of(code.digest))
    except KeyNotFound:
        storage.put(key_of(code.digest), io.BytesIO(zlib.compress(code.body, 6)))


def files_of(snapshot: CodeSnapshot) -> dict[str, str]:
    """Return the files of a snapshot: path to text. Raises KeyNotFound, StorageError."""
    with default_storage().open(key_of(snapshot.pk)) as stream:
        return unpack(zlib.decompress(stream.read()))
