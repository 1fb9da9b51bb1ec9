"""Upload and download of whole datasets: resumable, parallel, verified by SHA-256, in constant memory."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import httpx

from regatta import tree
from regatta.dataset_versions import Versions
from regatta.errors import BadFile, PortalError, Refused, Unreachable
from regatta.http import BACKOFF_SECONDS, TRIES, Http
from regatta.models import Dataset, StoredFile, Upload, Version
from regatta.tree import LocalFile, Piece

STREAMS = 4  # concurrent requests
POLL_SECONDS = 0.5
# Larger files are hashed while they are sent, and before that only if the portal may have them already.
HASHED_BEFORE = 8 << 20
AHEAD = 2  # parts read in advance for each stream
PARTIAL = 206  # the status of a partial response
EXISTS = "exists"  # error code: another file has that name
CHECKSUM_MISMATCH = "checksum_mismatch"  # error code: the bytes do not match the announced checksum
OPEN, SEALED, FAILED = "open", "sealed", "failed"


class Progress(Protocol):
    """Receives the progress of a transfer, in bytes. Called from several threads."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


class Silent:
    """Progress that reports nothing."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


SILENT = Silent()
Part = tuple[int, str]  # its number and its CRC-32
Item = TypeVar("Item")


class _OtherContent(Exception):
    """The portal's parts of a file are not of this content: it was changed since."""


@dataclass(frozen=True)
class Sender:
    """Uploads files as a new version of a dataset, or resumes an open version."""

    versions: Versions
    get_or_create: Callable[[str], Dataset]
    pause: Callable[[float], None]
    progress: Progress = SILENT
    streams: int = STREAMS
    # Limits the parts in transit, over all files.
    _slots: threading.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slots", threading.Semaphore(self.streams))

    def upload(self, full_name: str, sources: Sequence[Path], *, fresh: bool = False) -> Version:
        """Send files and seal the version. ``fresh`` begins a new version even if one is open.

        Content that the portal already has is not sent again: whole files by their digest, and parts of interrupted
        files. Raises BadFile for a file that cannot be read or changes meanwhile, QuotaExceeded before anything is
        sent.
        """
        files = tree.files_of(sources)
        total = sum(file.size for file in files)
        digests = self._digests([file for file in files if file.size <= HASHED_BEFORE])
        number = self._version(full_name, total, fresh)
        self.progress.begin("Uploading", total)
        _all_of(files, lambda file: self._send(full_name, number, file, digests.get(file.path, "")), self.streams)
        self.versions.seal(full_name, number)
        return self._sealed(full_name, number)

    def _digests(self, files: Sequence[LocalFile]) -> dict[str, str]:
        """Return the digests of small files, for which the portal is asked at once whether it has them."""
        if not files:
            return {}
        self.progress.begin("Hashing", sum(file.size for file in files))
        with ThreadPoolExecutor(self.streams) as pool:
            found = pool.map(lambda file: tree.sha256_of(file.file, self.progress.advance), files)
            return dict(zip((file.path for file in files), found, strict=True))

    def _version(self, full_name: str, total: int, fresh: bool) -> int:
        """Return the version to fill: an open one, else a new one. Creates the dataset if necessary."""
        found = self.get_or_create(full_name)
        left = [version.number for version in found.versions if version.state == OPEN]
        return left[-1] if left and not fresh else self.versions.open(full_name, total).number

    def _send(self, full_name: str, number: int, file: LocalFile, digest: str) -> None:
        """Send a file. Without a digest, it is hashed while it is sent, unless the portal may have it already."""
        upload = self._begin(full_name, number, file, digest)
        if upload.hash_first:
            upload = self._begin(full_name, number, file, tree.sha256_of(file.file))
        if not upload.complete:
            self._send_parts(full_name, number, file, upload)
            return
        self.progress.advance(file.size)
        file.check_unchanged()

    def _send_parts(self, full_name: str, number: int, file: LocalFile, upload: Upload) -> None:
        checksums = tree.Checksums(file, upload.part_size)
        try:
            parts = self._missing(file, upload, checksums)
            _all_of(parts, lambda part: self._send_part(full_name, number, file, upload, *part), self.streams)
        except _OtherContent:
            file.check_unchanged()
            self.versions.remove_file(full_name, number, upload.id)
            self._send(full_name, number, file, "")
        else:
            file.check_unchanged()
            self._finish(full_name, number, file, upload, checksums.sha256)

    def _missing(self, file: LocalFile, upload: Upload, checksums: Iterable[tuple[int, str]]) -> Iterator[Part]:
        """Yield the parts to be sent, while the file is read. Raises _OtherContent."""
        for part, crc32 in checksums:
            if part not in upload.parts:
                yield part, crc32
            elif len(there := upload.checksums.get(part, "")) == len(crc32) and there != crc32:
                raise _OtherContent
            else:
                self.progress.advance(_length(upload, part))

    def _begin(self, full_name: str, number: int, file: LocalFile, digest: str) -> Upload:
        """Announce a file. A different file of that name that was sent before is removed first."""
        try:
            return self.versions.begin(full_name, number, file.path, file.size, digest)
        except Refused as refused:
            if refused.code != EXISTS or "id" not in refused.body:
                raise
            self.versions.remove_file(full_name, number, str(refused.body["id"]))
            return self.versions.begin(full_name, number, file.path, file.size, digest)

    def _send_part(self, full_name: str, number: int, file: LocalFile, upload: Upload, part: int, crc32: str) -> None:
        piece = Piece(file, part * upload.part_size, _length(upload, part))
        with self._slots:
            try:
                self.versions.send_part(full_name, number, upload, part, piece, crc32)
            except Refused as refused:
                if refused.code != CHECKSUM_MISMATCH:
                    raise
                file.check_unchanged()  # then it was damaged in transit
                self.versions.send_part(full_name, number, upload, part, piece, crc32)
        self.progress.advance(piece.length)

    def _finish(self, full_name: str, number: int, file: LocalFile, upload: Upload, digest: str) -> None:
        try:
            while not self.versions.finish(full_name, number, upload, digest).complete:
                self.pause(POLL_SECONDS)
        except Refused as refused:
            if refused.code != CHECKSUM_MISMATCH:
                raise
            raise BadFile(f"{file.file} changed after it was hashed. Run the upload again.") from refused

    def _sealed(self, full_name: str, number: int) -> Version:
        """Wait until the records are counted and return the version. Raises Refused if that fails."""
        while (version := self.versions.get(full_name, number)).state not in (SEALED, FAILED):
            self.pause(POLL_SECONDS)
        if version.state == FAILED:
            raise Refused(f"Version {number} of {full_name} was uploaded, but cannot be used. {version.why}".strip())
        return version


def _length(upload: Upload, part: int) -> int:
    return min(upload.part_size, upload.size - part * upload.part_size)


@dataclass(frozen=True)
class Fetcher:
    """Downloads a version of a dataset to a folder. Correct existing files are not fetched again."""

    versions: Versions
    http: Http
    pause: Callable[[float], None]
    progress: Progress = SILENT
    streams: int = STREAMS

    def download(self, full_name: str, target: Path, version: int) -> list[Path]:
        """Return the files below ``target``. Each is complete and verified, or missing (with a ``.part`` to resume)."""
        files = list(self.versions.files(full_name, version))
        places = [tree.place_of(target, file.path) for file in files]
        self.progress.begin("Downloading", sum(file.size for file in files))
        pairs = list(zip(files, places, strict=True))
        _all_of(pairs, lambda pair: self._fetch(full_name, version, *pair), self.streams)
        return places

    def _fetch(self, full_name: str, version: int, file: StoredFile, place: Path) -> None:
        try:
            if place.is_file() and place.stat().st_size == file.size and tree.sha256_of(place) == file.sha256:
                self.progress.advance(file.size)
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_name(f"{place.name}.part")
            path = self.versions.content_path(full_name, version, file.path)
            # Data of an earlier download may be of another version: then the file is fetched from its beginning.
            if not self._complete(part, path, file) and not self._complete(part, path, file):
                raise Unreachable(
                    f"{file.path} is corrupt after two downloads: its SHA-256 does not start with {file.sha256[:12]}. "
                    "Run the download again. If the error persists, upload the file again."
                )
            part.replace(place)
        except OSError as error:
            raise BadFile(f"{place} cannot be written: {error.strerror or error}.") from error

    def _complete(self, part: Path, path: str, file: StoredFile) -> bool:
        """Append to ``part`` until the file is complete. Return whether size and digest match; if not, remove it."""
        digest = hashlib.sha256()
        have = min(part.stat().st_size, file.size) if part.is_file() else 0
        with part.open("r+b" if have else "wb") as stream:
            for piece in _pieces(stream.read, have):
                digest.update(piece)
            stream.truncate(have)
            self.progress.advance(have)
            for piece in self._rest(path, have, file):
                stream.write(piece)
                digest.update(piece)
                self.progress.advance(len(piece))
            stream.flush()
            os.fsync(stream.fileno())
        if part.stat().st_size == file.size and digest.hexdigest() == file.sha256:
            return True
        self.progress.advance(-part.stat().st_size)
        part.unlink()
        return False

    def _rest(self, path: str, have: int, file: StoredFile) -> Iterator[bytes]:
        """Yield the missing bytes of a file, resuming after each interruption as long as there is progress.

        If a response begins at byte 0, the bytes that are already there are skipped.
        """
        idle = 0
        while have < file.size:
            before = have
            try:
                with self.http.stream(path, start=have) as response:
                    if (begin := _begins_at(response)) > have:
                        raise Unreachable(f"The download of {file.path} starts at byte {begin}; requested byte {have}.")
                    passed_over = have - begin
                    for piece in response.iter_bytes():
                        passed_over, fresh = max(0, passed_over - len(piece)), piece[passed_over:]
                        fresh = fresh[: file.size - have]
                        have += len(fresh)
                        yield fresh
                    broken = Unreachable(f"The download of {file.path} ended after {have} of {file.size} bytes.")
            except Unreachable as error:
                broken = error
            idle = 0 if have > before else idle + 1
            if idle >= TRIES:
                raise broken
            if idle:
                self.pause(BACKOFF_SECONDS * 2**idle)


def _begins_at(response: httpx.Response) -> int:
    """Return the position of the first byte of a response. Servers and proxies may ignore the Range header."""
    if response.status_code != PARTIAL:
        return 0
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if found is None:
        raise Unreachable("A server between here and the portal did not return the requested part of the file.")
    return int(found[1])


_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-")


def _pieces(read: Callable[[int], bytes], count: int) -> Iterable[bytes]:
    while count and (piece := read(min(count, tree.PIECE))):
        count -= len(piece)
        yield piece


def _all_of(items: Iterable[Item], action: Callable[[Item], None], streams: int) -> None:
    """Call ``action`` for each item, in several threads. Items are taken as threads become free.

    After the first failure no further item is started, and the failure is raised.
    """
    enough = threading.Event()

    def unless_enough(item: Item) -> None:
        if not enough.is_set():
            action(item)

    with ThreadPoolExecutor(streams) as pool:
        try:
            waiting: set[Future[None]] = set()
            for item in items:
                waiting.add(pool.submit(unless_enough, item))
                if len(waiting) >= streams * (1 + AHEAD):
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    _raise_first(done)
            done, _ = wait(waiting, return_when=FIRST_EXCEPTION)
            _raise_first(done)
        finally:
            enough.set()


def _raise_first(ended: Iterable[Future[None]]) -> None:
    failed = next((error for future in ended if (error := future.exception())), None)
    if isinstance(failed, OSError):
        raise PortalError(f"A file could not be read: {failed}.") from failed
    if failed is not None:
        raise failed
