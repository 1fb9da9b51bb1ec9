"""Index of a version: the format of each file and its chunks.

No user code runs here, only the parsers of ``runtime.data``, which check every size against the file. Files are laid
out on this machine one at a time under their own names, which some formats require.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from datasets import messages
from datasets.manifest import BadPath, Chunk, Entry, Manifest, normalise
from datasets.models import File, Version
from datasets.storage import default_storage
from runtime.data import saved
from runtime.data.errors import FormatError, UnknownFormat
from runtime.data.format_selection import Chosen, Unread, choose, labels, of_version
from runtime.data.formats import images, registry
from runtime.data.formats.base import Format, digest_of
from runtime.data.optional_imports import find
from runtime.data.span import CHUNK_BYTES, Span
from runtime.errors import RegattaError as RuntimeFault

CHUNKS_LIMIT = 500_000  # chunks of one version
# Prefix of scratch directories in the storage's shelf.
SCRATCH = "index-"
_LIST = "list"
_NEEDS: Mapping[str, str] = {"parquet": "pyarrow", "arrow": "pyarrow"}

# Called often during indexing; raises if another worker has taken over.
Alive = Callable[[], None]


class Unindexable(Exception):
    """A file does not match its format. The text is the message with which the version fails."""


class Inspection:
    """Inspection of a version. ``chosen`` gives for each path how the file is read; ``manifest`` builds the
    manifest."""

    def __init__(self, version: Version, alive: Alive) -> None:
        self._version = version
        self._alive = alive
        self._left = CHUNKS_LIMIT
        found = {**dict(self._formats()), **self._left_out()}
        self.chosen = choose(found, version.dataset.format)
        # Maps files of images to the files of their labels.
        read = {path: each.format or Unread.LABELS for path, each in self.chosen.items()}
        self._labels = {path: of_it for of_it, path in labels(found).items() if read.get(path) == "idx"}
        self.format = of_version(self.chosen)

    def manifest(self) -> Manifest:
        """Build the manifest. Raises Unindexable for a file that does not match its format, StorageError if one cannot
        be read."""
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=default_storage().shelf()) as scratch:
            files = tuple(self._entry(file, Path(scratch)) for file in self._files())
        return Manifest(self._version.dataset.full_name, self._version.number, files)

    def _files(self) -> Iterator[File]:
        return self._version.files.select_related("blob").order_by("path").iterator()

    # --- Formats ---
    def _formats(self) -> Iterator[tuple[str, str | Unread]]:
        for file in self._files():
            self._alive()
            yield file.path, _format_of(file)

    def _left_out(self) -> Mapping[str, Unread]:
        """Return files in folders saved by HuggingFace that are not data. Raises Unindexable for an incomplete
        folder."""
        keys = {file.path: _key_of(file) for file in self._files()}
        try:
            return saved.left_out(keys, lambda path: _head(keys[path], saved.MOST_BYTES + 1))
        except FormatError as fault:
            raise Unindexable(str(fault)) from fault

    # --- Chunks ---
    def _entry(self, file: File, scratch: Path) -> Entry:
        chosen: Chosen = self.chosen[file.path]
        if not chosen.format:
            return Entry(file.path, file.size, file.sha256)
        format_ = registry.named(chosen.format)
        path = scratch / PurePosixPath(file.path).name
        _refuse_missing_package(file.path, format_)
        default_storage().place(_key_of(file), path)
        beside = self._place_labels(file, scratch)
        try:
            chunks = tuple(self._chunks(file, format_, path))
            records, unpacked = sum(each.records for each in chunks), registry.unpacked_size(path, format_)
            return Entry(file.path, file.size, file.sha256, chosen.format, records, chunks, unpacked)
        except RuntimeFault as fault:
            message = str(fault).replace(str(path), file.path)
            raise Unindexable(
                messages.FILE_INVALID_AS_FORMAT(path=f"{file.path!r}", format=format_.title, why=message)
            ) from fault
        finally:
            for each in (path, *beside):
                each.unlink(missing_ok=True)

    def _place_labels(self, file: File, scratch: Path) -> list[Path]:
        """Lay out the labels of images beside them, where the reader expects them."""
        if file.path not in self._labels:
            return []
        of_it = self._version.files.select_related("blob").get(path=self._labels[file.path])
        path = scratch / PurePosixPath(of_it.path).name
        default_storage().place(_key_of(of_it), path)
        return [path]

    def _chunks(self, file: File, format_: Format, path: Path) -> Iterator[Chunk]:
        for span in format_.index(path, CHUNK_BYTES):
            self._alive()
            if span.records:
                yield self._checked(file, format_, path, span)

    def _checked(self, file: File, format_: Format, path: Path, span: Span) -> Chunk:
        self._left -= 1
        if self._left < 0:
            raise Unindexable(
                messages.VERSION_CHUNK_LIMIT(path=f"{file.path!r}", offset=span.offset, count=CHUNKS_LIMIT)
            )
        if format_.name == _LIST:
            self._refuse_missing_images(file, path, span)
        digest = digest_of(path, span) if span.digest is None and format_.takes_digest else span.digest
        return Chunk(span.offset, span.length, span.records, digest, span.split)

    def _refuse_missing_images(self, file: File, path: Path, span: Span) -> None:
        folder = PurePosixPath(file.path).parent
        for name in images.names(path, span):
            if not self._has(str(folder / name)):
                raise Unindexable(
                    messages.LISTED_FILE_NOT_IN_VERSION(
                        path=f"{file.path!r}", offset=span.offset, name=f"{name[:200]!r}"
                    )
                )

    def _has(self, path: str) -> bool:
        try:
            return normalise(path) in self.chosen
        except BadPath:
            return False


def _format_of(file: File) -> str | Unread:
    try:
        return registry.of(PurePosixPath(file.path), _head(_key_of(file), registry.HEAD_BYTES)).name
    except UnknownFormat as unknown:
        return Unread.PACKED if unknown.packed else Unread.UNKNOWN


def _head(key: str, size: int) -> bytes:
    with default_storage().open(key) as stream:
        return stream.read(size)


def _key_of(file: File) -> str:
    assert file.blob is not None  # noqa: S101  only whole files are sealed
    return file.blob.key


def _refuse_missing_package(path: str, format_: Format) -> None:
    package = _NEEDS.get(format_.name)
    if package and find(package) is None:
        raise Unindexable(messages.FORMAT_PACKAGE_MISSING(path=f"{path!r}", format=format_.title, package=package))
