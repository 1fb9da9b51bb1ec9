"""Interface of all formats: a file's chunks, and a chunk's records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from runtime.data.checksums import crc32
from runtime.data.errors import FormatError
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages

_PIECE_BYTES = 1 << 20


class HasSize(Protocol):
    @property
    def st_size(self) -> int: ...


class File(Protocol):
    """A file as formats read it: a Path, or the content of a packed file. ``str`` returns the path."""

    @property
    def name(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def parent(self) -> Path: ...

    def open(self, mode: Literal["rb"], buffering: int = -1) -> IO[bytes]: ...

    def stat(self) -> HasSize: ...


# Returns the chunks of a file, each of about the given bytes if the format leaves the choice. Reads as little as it
# can.
Index = Callable[[Path, int], Iterable[Span]]
# Yields the records of such a chunk, in order and exactly as many as indexed. All is checked before the first is
# yielded.
Read = Callable[[Path, Span], Iterator[Any]]
# Returns whether the first bytes of a file are of this format.
Recognise = Callable[[bytes], bool]
# Returns the splits that a file itself names, if its records belong to several.
Splits = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class Format:
    """A format that is read in place. ``record`` describes what one record is in Python.

    ``index`` and ``read`` raise FormatError for an invalid file, OSError for one that cannot be read, and UsageError if
    the format needs a package that is not installed.
    """

    name: str
    title: str
    record: str
    suffixes: tuple[str, ...]
    index: Index
    read: Read
    recognise: Recognise = lambda head: False
    # The index does not read a chunk's bytes, and reading uses them unchanged: their CRC-32 may be set as its digest.
    takes_digest: bool = False
    # Files packed with gzip are read too.
    packable: bool = False
    splits: Splits = lambda path: ()


def read_bytes(path: File, span: Span) -> bytes:
    """Return the bytes of a chunk. Raises FormatError if the file has changed since it was listed."""
    if not 0 <= span.length <= MAX_CHUNK_BYTES:
        raise too_large(path, span.offset, span.length)
    with path.open("rb", buffering=0) as file:
        file.seek(span.offset)
        data = read_all(file.read, span.length)
    if len(data) != span.length:
        raise FormatError(messages.CHUNK_TRUNCATED_SINCE_INDEXED(path=path, offset=span.offset))
    if span.digest is not None and crc32(data) != span.digest:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return data


def digest_of(path: File, span: Span) -> int:
    """Return the CRC-32 of a chunk's bytes. Raises FormatError if the file has changed since it was listed."""
    digest, left = 0, span.length
    with path.open("rb", buffering=0) as file:
        file.seek(span.offset)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            digest, left = crc32(piece, digest), left - len(piece)
    if left:
        raise FormatError(messages.CHUNK_TRUNCATED_SINCE_INDEXED(path=path, offset=span.offset))
    return digest


def too_large(path: File | str, offset: int, length: int) -> FormatError:
    """Return the error for an indivisible piece of a file that is too long to read."""
    return FormatError(
        messages.READ_TOO_LARGE(
            where=messages.OFFSET_PLACE(path=path, offset=offset), size=length, most=MAX_CHUNK_BYTES
        )
    )


def read_all(read: Callable[[int], bytes], length: int) -> bytes:
    """Read ``length`` bytes, or fewer at the end."""
    data = read(length)
    while 0 < len(data) < length and (more := read(length - len(data))):
        data += more
    return data
