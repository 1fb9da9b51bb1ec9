"""Contents of a dataset version: paths, files, upload parts, and the chunks in which files are read. Pure.

A manifest is written once, when a version is sealed, and never changes. As JSON::

    {"format": 1, "dataset": "team/mine", "version": 2, "files": [
        {"path": "train/a.csv", "size": 1048576, "sha256": "<hex>", "format": "csv", "records": 500,
         "chunks": [[<offset>, <length>, <records>, <CRC-32 or null>], ...]}, ...]}

A fifth item of a chunk names its split, for files that contain split names themselves. A gzip-compressed file has
``unpacked``, its uncompressed size; its chunks refer to the uncompressed data.

Offsets and lengths are in bytes. Chunks are in ascending order, do not overlap, and lie within their file. A file whose
records are not read has an empty format, no chunks, and null ``records``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from datasets import messages

FORMAT = 2
PATH_LIMIT = 500  # characters of a path
SEGMENT_LIMIT = 200  # bytes of one path segment; file systems allow 255
DEPTH_LIMIT = 16  # segments of a path

MIB = 1024**2
SMALLEST_PART = 8 * MIB
# Every part costs a request, a transaction and a disk sync, so larger files have larger parts. Parts are limited in
# size so that an upload on a slow connection shows progress and loses only minutes when it breaks.
USUAL_PARTS, LARGEST_USUAL_PART = 64, 32 * MIB
MOST_PARTS = 10_000
LARGEST_FILE = 2**43  # 8 TiB

_DIGEST = re.compile(r"[0-9a-f]{64}")


class BadPath(ValueError):
    """A path that a dataset file may not have. The text is a message that gives the reason."""


class BadManifest(ValueError):
    """A manifest that is invalid or inconsistent. The text gives the place."""


# --- Paths -----------------------------------------------------------------------------------------------------------
def normalise(path: str) -> str:
    """Return the canonical spelling of a file's path: names joined by ``/``, in Unicode's composed form (NFC).

    Raises BadPath for a path that is absolute, leaves the dataset, is hidden, contains control characters or does not
    fit a file system.
    """
    composed = unicodedata.normalize("NFC", path)
    names = [name for name in composed.split("/") if name not in ("", ".")]
    refused = next((why for is_so, why in _REFUSED if is_so(composed, names)), None)
    if refused:
        raise BadPath(messages.FILE_PATH_INVALID(path=_shown(path), why=refused))
    return "/".join(names)


def folded(path: str) -> str:
    """Return the form that is equal for paths that some file systems treat as one: lower case, compatible form
    (NFKC)."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def ancestors(path: str) -> list[str]:
    """Return the parent folders of a path, folded: ``a/b/c`` needs ``a`` and ``a/b``."""
    names = folded(path).split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _shown(path: str) -> str:
    return repr(path[:80])


_REFUSED = (
    (lambda path, names: path.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", path), messages.PATH_NOT_RELATIVE()),
    (lambda path, names: not names or path.endswith("/"), messages.PATH_WITHOUT_FILE_NAME()),
    (lambda path, names: ".." in names, messages.PATH_OUTSIDE_DATASET()),
    (lambda path, names: "\\" in path, messages.PATH_WITH_BACKSLASH()),
    (lambda path, names: not path.isprintable(), messages.PATH_WITH_INVISIBLE_CHARACTER()),
    (lambda path, names: any(name.startswith(".") for name in names), messages.PATH_NAME_BEGINS_WITH_DOT()),
    (lambda path, names: any(name != name.strip() for name in names), messages.PATH_NAME_EDGE_SPACE()),
    (lambda path, names: len(path) > PATH_LIMIT, messages.PATH_TOO_LONG(count=PATH_LIMIT)),
    (lambda path, names: len(names) > DEPTH_LIMIT, messages.PATH_TOO_DEEP(count=DEPTH_LIMIT)),
    (
        lambda path, names: any(len(name.encode()) > SEGMENT_LIMIT for name in names),
        messages.PATH_NAME_TOO_LONG(count=SEGMENT_LIMIT),
    ),
)


# --- Parts -----------------------------------------------------------------------------------------------------------
def part_size_for(size: int) -> int:
    """Return the part size for a file of ``size`` bytes: a multiple of 1 MiB, at least SMALLEST_PART.

    There are at most USUAL_PARTS parts while the part size is within LARGEST_USUAL_PART, and never more than
    MOST_PARTS.
    """
    usual = min(_whole_mib(size, USUAL_PARTS), LARGEST_USUAL_PART)
    return max(SMALLEST_PART, usual, _whole_mib(size, MOST_PARTS))


def _whole_mib(size: int, parts: int) -> int:
    """Return the smallest multiple of 1 MiB for which ``parts`` parts hold ``size`` bytes."""
    return -(-size // (parts * MIB)) * MIB


@dataclass(frozen=True)
class Parts:
    """Division of a file of ``size`` bytes into parts of ``part_size`` bytes, numbered from 0.

    The last part may be shorter. An empty file has no parts.
    """

    size: int
    part_size: int

    @property
    def count(self) -> int:
        return -(-self.size // self.part_size)

    def span(self, number: int) -> tuple[int, int]:
        """Return offset and length of a part. Raises LookupError if the file has no such part."""
        if not 0 <= number < self.count:
            raise LookupError(number)
        offset = number * self.part_size
        return offset, min(self.part_size, self.size - offset)

    def missing(self, there: Collection[int]) -> list[int]:
        """Return the numbers of the missing parts, in ascending order."""
        return [number for number in range(self.count) if number not in there]


def is_digest(text: str) -> bool:
    """Return whether the text is a SHA-256 in lower-case hexadecimal."""
    return _DIGEST.fullmatch(text) is not None


# --- Manifest --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Chunk:
    """Part of a file that can be read on its own. For ``digest``, see ``runtime.data.span.Span``."""

    offset: int
    length: int
    records: int
    digest: int | None = None
    split: str = ""


@dataclass(frozen=True)
class Entry:
    """One file of a manifest.

    ``format`` is a name in ``runtime.data.formats.registry``; if it is empty, the file's records are not read and
    ``records`` is None. ``unpacked`` is the uncompressed size of a gzip file, in which its chunks lie, else None.
    """

    path: str
    size: int
    sha256: str
    format: str = ""
    records: int | None = None
    chunks: tuple[Chunk, ...] = ()
    unpacked: int | None = None


@dataclass(frozen=True)
class Manifest:
    """All files of a version, in any order."""

    dataset: str
    version: int
    files: tuple[Entry, ...] = field(default=())

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(entry.size for entry in self.files)

    @property
    def records(self) -> int | None:
        """Number of records in all files; None if no file has records that can be counted."""
        counted = [entry.records for entry in self.files if entry.records is not None]
        return sum(counted) if counted else None

    def dump(self) -> bytes:
        """Return the manifest as JSON. Equal manifests give equal bytes. Raises BadManifest."""
        _check(self)
        files = [_entry_json(entry) for entry in sorted(self.files, key=lambda entry: entry.path)]
        body = {"format": FORMAT, "dataset": self.dataset, "version": self.version, "files": files}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def load(document: bytes) -> Manifest:
    """Parse a manifest. Raises BadManifest for every other document."""
    try:
        body = json.loads(document)
        if body["format"] != FORMAT:
            raise BadManifest(f"This manifest is of format {body['format']!r}; known is {FORMAT}.")
        files = tuple(_entry(row) for row in body["files"])
        manifest = Manifest(str(body["dataset"]), _whole(body["version"]), files)
    except BadManifest:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadManifest(f"This is no manifest ({error!r}).") from error
    _check(manifest)
    return manifest


def _entry_json(entry: Entry) -> dict[str, Any]:
    packed = {} if entry.unpacked is None else {"unpacked": entry.unpacked}
    return {
        "path": entry.path,
        "size": entry.size,
        "sha256": entry.sha256,
        "format": entry.format,
        "records": entry.records,
        "chunks": [_chunk_json(chunk) for chunk in entry.chunks],
        **packed,
    }


def _chunk_json(chunk: Chunk) -> list[int | str | None]:
    split = [chunk.split] if chunk.split else []
    return [chunk.offset, chunk.length, chunk.records, chunk.digest, *split]


def _entry(row: Mapping[str, Any]) -> Entry:
    chunks = tuple(_chunk(*fields) for fields in row["chunks"])
    records, unpacked = row["records"], row.get("unpacked")
    return Entry(
        path=str(row["path"]),
        size=_whole(row["size"]),
        sha256=str(row["sha256"]),
        format=str(row["format"]),
        records=None if records is None else _whole(records),
        chunks=chunks,
        unpacked=None if unpacked is None else _whole(unpacked),
    )


def _chunk(offset: object, length: object, records: object, digest: object, split: str = "") -> Chunk:
    checked = None if digest is None else _whole(digest)
    return Chunk(_whole(offset), _whole(length), _whole(records), checked, str(split))


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadManifest(f"{value!r} is no count.")
    return value


def _check(manifest: Manifest) -> None:
    for fault in _faults(manifest):
        raise BadManifest(fault)


def _faults(manifest: Manifest) -> Iterator[str]:
    seen: set[str] = set()
    for entry in manifest.files:
        yield from _faults_of(entry)
        if folded(entry.path) in seen:
            yield f"{entry.path!r} is in it twice."
        seen.add(folded(entry.path))
    for entry in manifest.files:
        if crossed := [folder for folder in ancestors(entry.path) if folder in seen]:
            yield f"{entry.path!r} lies in {crossed[0]!r}, which is a file."


def _faults_of(entry: Entry) -> Iterator[str]:
    try:
        if normalise(entry.path) != entry.path:
            yield f"{entry.path!r} is not spelled as it should be."
    except BadPath as error:
        yield str(error)
    if not is_digest(entry.sha256) or any((chunk.digest or 0) >> 32 for chunk in entry.chunks):
        yield f"{entry.path!r} has a digest that is none."
    end, size = 0, entry.size if entry.unpacked is None else entry.unpacked
    for chunk in entry.chunks:
        if chunk.offset < end or chunk.length < 1 or chunk.offset + chunk.length > size:
            yield f"{entry.path!r} has a chunk at {chunk.offset} that overlaps another or leaves the file."
        end = chunk.offset + chunk.length
    if entry.chunks and entry.records != sum(chunk.records for chunk in entry.chunks):
        yield f"{entry.path!r} counts other records than its chunks."
