"""Versions of datasets: their files, and the requests of an upload."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from regatta.errors import PortalError
from regatta.http import Http
from regatta.models import StoredFile, Upload, Version
from regatta.paths import segment
from regatta.tree import Piece

CHECKSUM = "X-Content-CRC32"


class Versions:
    """Versions of datasets, by the full name of the dataset and their number.

    Each method is one request, but ``files``. For whole uploads and downloads, see ``Datasets``.
    """

    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self, full_name: str, number: int) -> Version:
        return Version.from_json(self._http.get(path_of(full_name, number)))

    def open(self, full_name: str, expected_bytes: int) -> Version:
        """Create a version to be filled. Raises QuotaExceeded before any byte is sent."""
        body = {"expected_bytes": expected_bytes}
        return Version.from_json(self._http.post(f"{path_of(full_name)}/versions", body))

    def seal(self, full_name: str, number: int) -> Version:
        """Close the version. The portal then counts its records and makes it visible."""
        return Version.from_json(self._http.post(f"{path_of(full_name, number)}/seal"))

    def files(self, full_name: str, number: int) -> Iterator[StoredFile]:
        yield from map(StoredFile.from_json, self._http.pages(f"{path_of(full_name, number)}/files"))

    def begin(self, full_name: str, number: int, path: str, size: int, sha256: str = "") -> Upload:
        """Announce a file. Content that the portal already has need not be sent again.

        Raises Refused, with the code ``exists`` and the ``id`` of the other file if the name is taken.
        """
        body = {"path": path, "size": size, "sha256": sha256}
        return Upload.from_json(self._http.post(f"{path_of(full_name, number)}/files", body))

    def remove_file(self, full_name: str, number: int, file_id: str) -> None:
        """Remove a file from a version that is not sealed."""
        self._http.delete(f"{path_of(full_name, number)}/files/{quote(file_id)}")

    def send_part(self, full_name: str, number: int, file: Upload, part: int, content: Piece, crc32: str) -> None:
        path = f"{path_of(full_name, number)}/files/{quote(file.id)}/parts/{part}"
        headers = {CHECKSUM: crc32, "Content-Type": "application/octet-stream"}
        self._http.put_bytes(path, content, content.length, headers)

    def finish(self, full_name: str, number: int, file: Upload, sha256: str) -> Upload:
        """Complete a file whose parts are all sent. Repeat the call while it is not ``complete``.

        The portal may still be reading a large file. Raises Refused if parts are missing or do not match ``sha256``.
        """
        path = f"{path_of(full_name, number)}/files/{quote(file.id)}/complete"
        return Upload.from_json(self._http.post(path, {"sha256": sha256}))

    def content_path(self, full_name: str, number: int, path: str) -> str:
        return f"{path_of(full_name, number)}/content/{quote(path)}"


def split(full_name: str) -> tuple[str, str]:
    """Split ``namespace/name``. Raises PortalError."""
    namespace, slash, name = full_name.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PortalError(f"A dataset is named namespace/name, such as public/digits (got {full_name!r}).")
    return namespace, name


def path_of(full_name: str, version: int | None = None) -> str:
    """Return the path of a dataset or of a version of it. Raises PortalError."""
    namespace, name = split(full_name)
    whole = f"/api/v1/datasets/{segment(namespace)}/{segment(name)}"
    return whole if version is None else f"{whole}/versions/{version}"
