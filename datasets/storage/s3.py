"""Storage in a bucket of an S3-compatible service.

``put`` first copies the stream to an unnamed file on this machine, which gives its size and hash, and then uploads it;
an object appears completely or not at all. The SHA-256 is stored as metadata, so it is known without reading the
content. Staged files and layouts for jobs are in ``scratch`` on this machine; layouts are copies.

Requires the package boto3 (``requirements-s3.txt``), which finds credentials like AWS's own tools.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from datasets import messages
from datasets.storage.base import KeyNotFound, Stat, StorageAway, StorageError, StorageFull, normalise

_PIECE = 1 << 20
_BUFFER = 1 << 18
_SHA256 = "sha256"
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_FULL = frozenset({"QuotaExceeded", "507", "InsufficientStorage", "XMinioStorageFull"})
_AWAY = frozenset({"500", "502", "503", "504", "InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout"})
_BEYOND = frozenset({"416", "InvalidRange"})
_STAGING, _SHELF = ".staging", ".shelf"
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class Address:
    """Bucket and common prefix of all keys. ``endpoint`` is the URL of the service; empty means Amazon's."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""


class S3Storage:
    """Stores files in a bucket. ``scratch`` is a directory of this machine."""

    def __init__(self, address: Address, scratch: Path) -> None:
        self._address = address
        self._scratch = scratch

    def put(self, key: str, stream: BinaryIO) -> Stat:
        key = normalise(key)
        with _disk_errors(), tempfile.TemporaryFile(dir=self.staging()) as whole:
            size, digest = _copy(stream, cast(BinaryIO, whole))
            whole.seek(0)
            return self._send(cast(BinaryIO, whole), Stat(key, size, digest))

    def open(self, key: str, offset: int = 0) -> BinaryIO:
        key = normalise(key)
        asked = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            answer = self._call(key, lambda client, place: client.get_object(**place, **asked))
        except _Beyond:
            return io.BytesIO()
        found = cast(BinaryIO, io.BufferedReader(_Body(key, answer["Body"]), _BUFFER))
        if offset and "ContentRange" not in answer:  # services and proxies without range support send everything
            _skip(found, offset)
        return found

    def stat(self, key: str) -> Stat:
        key = normalise(key)
        return _stat(key, self._call(key, lambda client, place: client.head_object(**place)))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        folder = f"{normalise(prefix)}/" if prefix.strip("/") else ""
        begin = self._place("")["Key"]
        pages = self._client().get_paginator("list_objects_v2")
        with _service_errors(folder):
            for page in pages.paginate(Bucket=self._address.bucket, Prefix=begin + folder):
                for found in page.get("Contents", ()):
                    # Deleted while the list is read: not part of it.
                    with contextlib.suppress(KeyNotFound):
                        yield self.stat(found["Key"].removeprefix(begin))

    def delete(self, key: str) -> None:
        self._call(normalise(key), lambda client, place: client.delete_object(**place))

    def staging(self) -> Path:
        return self._folder(_STAGING)

    def shelf(self) -> Path:
        return self._folder(_SHELF)

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        with _disk_errors():
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def adopt(self, key: str, path: Path, sha256: str) -> Stat:
        key = normalise(key)
        with contextlib.suppress(KeyNotFound):
            found = self.stat(key)
            path.unlink(missing_ok=True)
            return found
        try:
            with path.open("rb") as file:
                sent = self._send(file, Stat(key, os.fstat(file.fileno()).st_size, sha256))
        except FileNotFoundError:
            return self.stat(key)  # another caller was faster; or it exists nowhere
        path.unlink(missing_ok=True)
        return sent

    def place(self, key: str, path: Path) -> None:
        draft = path.with_name(f".{path.name[:100]}-{os.getpid()}")
        try:
            with _disk_errors(), self.open(key) as source, draft.open("wb") as target:
                while piece := source.read(_PIECE):
                    target.write(piece)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def signed_url(self, key: str, expires: timedelta) -> str | None:
        place = self._place(normalise(key))
        url: str = self._client().generate_presigned_url("get_object", place, int(expires.total_seconds()))
        return url

    # --- The service ---
    def _client(self) -> Any:
        return _client(self._address.endpoint, self._address.region)

    def _place(self, key: str) -> dict[str, str]:
        prefix = f"{self._address.prefix}/" if self._address.prefix else ""
        return {"Bucket": self._address.bucket, "Key": prefix + key}

    def _call(self, key: str, request: Callable[[Any, Mapping[str, str]], Any]) -> Any:
        with _service_errors(key):
            return request(self._client(), self._place(key))

    def _send(self, file: BinaryIO, due: Stat) -> Stat:
        """Upload the file and verify its metadata: a success status may come from a proxy's page."""
        place = self._place(due.key)
        more = {"Metadata": {_SHA256: due.sha256}}
        with _service_errors(due.key):
            # Large files are sent in parts, several at once; the parts of a failed upload are removed.
            self._client().upload_fileobj(_OpenFile(file), place["Bucket"], place["Key"], ExtraArgs=more)
        if (found := self.stat(due.key)) != due:
            raise StorageError(messages.STORAGE_SIZE_MISMATCH(count=found.size, name=f"{due.key!r}", expected=due.size))
        return found


class _OpenFile(io.RawIOBase):
    """File that stays open: boto3 closes the file it is given."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class _Body(io.RawIOBase):
    """Body of a response. Raises StorageError if the connection breaks."""

    def __init__(self, key: str, body: Any) -> None:
        self._key = key
        self._body = body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _service_errors(self._key):
            piece = self._body.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._body.close()
        super().close()


class _Beyond(Exception):
    """The range begins beyond the end of the content."""


@lru_cache(maxsize=8)
def _client(endpoint: str, region: str) -> Any:
    """Return the client of this process, shared by all threads. Raises StorageError if boto3 is not installed."""
    try:
        import boto3  # type: ignore[import-untyped,unused-ignore]
        from botocore.config import Config  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise StorageError(messages.S3_PACKAGE_MISSING()) from None
    # Other services do not support Amazon's newest checksums; the metadata contains ours.
    config = Config(
        retries={"mode": "standard", "max_attempts": 4},
        connect_timeout=10,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.client("s3", endpoint_url=endpoint or None, region_name=region or None, config=config)


@contextlib.contextmanager
def _service_errors(key: str) -> Iterator[None]:
    """Translate errors of the service and of the connection to it into errors of the storage."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped,unused-ignore]

    try:
        yield
    except ClientError as error:
        error_body = error.response.get("Error", {})
        code, message = str(error_body.get("Code", "")), str(error_body.get("Message", ""))
        if code in _MISSING:
            raise KeyNotFound(key) from None
        if code in _BEYOND:
            raise _Beyond from None
        if code in _FULL:
            raise StorageFull(messages.STORAGE_BUCKET_FULL(key=f"{key!r}")) from error
        kind = StorageAway if code in _AWAY else StorageError
        raise kind(messages.STORAGE_REQUEST_REJECTED(key=f"{key!r}", code=code, error=message[:200])) from error
    except (BotoCoreError, ConnectionError) as error:
        raise StorageAway(messages.STORAGE_UNAVAILABLE(error=error)) from error


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise StorageFull(messages.DISK_FULL()) from error


def _stat(key: str, answer: Mapping[str, Any]) -> Stat:
    return Stat(key, int(answer["ContentLength"]), str(answer.get("Metadata", {}).get(_SHA256, "")))


def _skip(source: BinaryIO, count: int) -> None:
    """Read and discard ``count`` bytes, or up to the end."""
    while count and (piece := source.read(min(_PIECE, count))):
        count -= len(piece)


def _copy(source: BinaryIO, target: BinaryIO) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_PIECE):
        target.write(piece)
        digest.update(piece)
        size += len(piece)
    return size, digest.hexdigest()
