"""Datasets of the portal as methods: ``client.data``. For whole directories, see ``regatta.transfer``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from regatta.errors import PortalError
from regatta.http import Http
from regatta.models import DataSet, Use, Version
from regatta.tree import Piece

CHECKSUM = "X-Content-CRC32"


@dataclass(frozen=True)
class Upload:
    """File that is being uploaded.

    ``parts`` are the numbers of the parts that the portal has; part ``k`` begins at byte ``k * part_size``.
    ``checksums`` are those with which these parts were sent. ``hash_first``: the portal may have the same content
    already, which it can tell by the SHA-256.
    """

    id: str
    path: str
    size: int
    part_size: int
    parts: frozenset[int]
    complete: bool
    checksums: Mapping[int, str] = field(default_factory=dict)
    hash_first: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Upload:
        return cls(
            id=str(body["id"]),
            path=body["path"],
            size=int(body["size"]),
            part_size=int(body["part_size"]),
            parts=frozenset(body["parts"]),
            complete=bool(body["complete"]),
            checksums=dict(zip(body["parts"], body.get("checksums", ()), strict=False)),
            hash_first=bool(body.get("hash_first", False)),
        )

    @property
    def missing(self) -> tuple[int, ...]:
        """Parts that are still to be sent."""
        return tuple(part for part in range(-(-self.size // self.part_size)) if part not in self.parts)


@dataclass(frozen=True)
class StoredFile:
    """File of a sealed version. ``records`` is None if they were not counted."""

    path: str
    size: int
    sha256: str
    records: int | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> StoredFile:
        return cls(body["path"], int(body["size"]), body["sha256"], body.get("records"))


class DataSets:
    """Datasets that the account may see. A full name is ``namespace/name``."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def all(self, query: str | None = None) -> Iterator[DataSet]:
        """Yield the datasets of the account's namespaces, those shared with them, and the public ones."""
        yield from map(DataSet.from_json, self._http.pages("/api/v1/datasets", q=query))

    def of(self, namespace: str, query: str | None = None) -> Iterator[DataSet]:
        yield from map(DataSet.from_json, self._http.pages(f"/api/v1/namespaces/{quote(namespace)}/datasets", q=query))

    def get(self, full_name: str) -> DataSet:
        """Return a dataset. Raises Missing."""
        return DataSet.from_json(self._http.get(_path(full_name)))

    def create(self, full_name: str, *, description: str = "") -> DataSet:
        namespace, name = split(full_name)
        body = {"name": name, "description": description}
        return DataSet.from_json(self._http.post(f"/api/v1/namespaces/{quote(namespace)}/datasets", body))

    def change(self, full_name: str, **changed: Any) -> DataSet:
        """Change ``description=`` and ``visibility=`` ("private" or "public")."""
        return DataSet.from_json(self._http.patch(_path(full_name), changed))

    def share(self, full_name: str, namespaces: Sequence[str]) -> DataSet:
        """Share the dataset with exactly these namespaces."""
        return DataSet.from_json(self._http.put(f"{_path(full_name)}/shares", {"namespaces": list(namespaces)}))

    def remove(self, full_name: str) -> None:
        """Delete the dataset. ``restore`` undoes this during a grace period."""
        self._http.delete(_path(full_name))

    def restore(self, full_name: str) -> DataSet:
        return DataSet.from_json(self._http.post(f"{_path(full_name)}/restore"))

    def preview(self, full_name: str, version: int, *, limit: int = 20) -> dict[str, Any]:
        """Return the first records as rows of cells. Raises Missing.

        The result is ``{"format", "file", "columns": [{"name", "type"}], "records", "pictures", "statistics":
        {"records", "size", "files", "chunks"}, "more_columns", "why"}``.
        """
        return dict(self._http.get(f"{_path(full_name, version)}/preview", limit=limit))

    def uses(self, full_name: str) -> list[Use]:
        """Return the newest jobs that use the dataset and that the account may see. Raises Missing."""
        return [Use.from_json(use) for use in self._http.get(f"{_path(full_name)}/uses")["uses"]]

    # --- Versions ----------------------------------------------------------------------------------------------------
    def version(self, full_name: str, number: int) -> Version:
        return Version.from_json(self._http.get(_path(full_name, number)))

    def open_version(self, full_name: str, expected_bytes: int) -> Version:
        """Create a version to be filled. Raises QuotaExceeded before any byte is sent."""
        body = {"expected_bytes": expected_bytes}
        return Version.from_json(self._http.post(f"{_path(full_name)}/versions", body))

    def seal(self, full_name: str, number: int) -> Version:
        """Close the version. The portal then counts its records and makes it visible."""
        return Version.from_json(self._http.post(f"{_path(full_name, number)}/seal"))

    def files(self, full_name: str, number: int) -> Iterator[StoredFile]:
        yield from map(StoredFile.from_json, self._http.pages(f"{_path(full_name, number)}/files"))

    # --- Uploads -----------------------------------------------------------------------------------------------------
    def begin(self, full_name: str, number: int, path: str, size: int, sha256: str = "") -> Upload:
        """Announce a file. Content that the portal already has need not be sent again.

        Raises Refused, with the code ``exists`` and the ``id`` of the other file if the name is taken.
        """
        body = {"path": path, "size": size, "sha256": sha256}
        return Upload.from_json(self._http.post(f"{_path(full_name, number)}/files", body))

    def take_out(self, full_name: str, number: int, file_id: str) -> None:
        """Remove a file from a version that is not sealed."""
        self._http.delete(f"{_path(full_name, number)}/files/{quote(file_id)}")

    def send_part(self, full_name: str, number: int, file: Upload, part: int, content: Piece, crc32: str) -> None:
        path = f"{_path(full_name, number)}/files/{quote(file.id)}/parts/{part}"
        headers = {CHECKSUM: crc32, "Content-Type": "application/octet-stream"}
        self._http.put_bytes(path, content, content.length, headers)

    def finish(self, full_name: str, number: int, file: Upload, sha256: str) -> Upload:
        """Complete a file whose parts are all sent. Repeat the call while it is not ``complete``.

        The portal may still be reading a large file. Raises Refused if parts are missing or do not match ``sha256``.
        """
        path = f"{_path(full_name, number)}/files/{quote(file.id)}/complete"
        return Upload.from_json(self._http.post(path, {"sha256": sha256}))

    def content_path(self, full_name: str, number: int, path: str) -> str:
        return f"{_path(full_name, number)}/content/{quote(path)}"


def split(full_name: str) -> tuple[str, str]:
    """Split ``namespace/name``. Raises PortalError."""
    namespace, slash, name = full_name.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PortalError(f"A dataset is named namespace/name, such as public/digits (got {full_name!r}).")
    return namespace, name


def _path(full_name: str, version: int | None = None) -> str:
    namespace, name = split(full_name)
    whole = f"/api/v1/datasets/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return whole if version is None else f"{whole}/versions/{version}"
