"""The one interface of all formats: a file's chunks, and a chunk's records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from runtime.data.checksums import crc32
from runtime.data.errors import FormatError
from runtime.data.span import MAX_CHUNK_BYTES, Span

_PIECE_BYTES = 1 << 20


class HasSize(Protocol):
    @property
    def st_size(self) -> int: ...


class File(Protocol):
    """A file as formats read it: a Path, or what is packed in one. Its text is the path."""

    @property
    def name(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def parent(self) -> Path: ...

    def open(self, mode: Literal["rb"], buffering: int = -1) -> IO[bytes]: ...

    def stat(self) -> HasSize: ...


# The chunks of a file, each of about so many bytes where the format leaves the choice. Reads as little as it can.
Index = Callable[[Path, int], Iterable[Span]]
# The records of one of these chunks, in order; exactly as many as the index said. All is checked before it is given.
Read = Callable[[Path, Span], Iterator[Any]]
# Whether the first bytes of a file are this format's.
Recognise = Callable[[bytes], bool]
# The splits that a file itself names, where its records belong to several.
Splits = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class Format:
    """A format that is read in place. ``record`` says what one record is in Python.

    ``index`` and ``read`` raise FormatError for a file that is not as it should be, OSError for one that cannot be
    read, and UsageError where the format needs a package that is not installed.
    """

    name: str
    title: str
    record: str
    suffixes: tuple[str, ...]
    index: Index
    read: Read
    recognise: Recognise = lambda head: False
    # A chunk is read as its bytes, and its index does not read them: their CRC-32 may be given to it as its digest.
    takes_digest: bool = False
    # Files that gzip packs are read too.
    packable: bool = False
    splits: Splits = lambda path: ()


def read_bytes(path: File, span: Span) -> bytes:
    """The bytes of a chunk. Raises FormatError where the file has changed since it was listed."""
    if not 0 <= span.length <= MAX_CHUNK_BYTES:
        raise too_large(path, span.offset, span.length)
    with path.open("rb", buffering=0) as file:
        file.seek(span.offset)
        data = read_all(file.read, span.length)
    if len(data) != span.length:
        raise FormatError(f"{path} ends inside the chunk at {span.offset}; it has been cut short since it was listed.")
    if span.digest is not None and crc32(data) != span.digest:
        raise FormatError(f"{path}, chunk at {span.offset}: the file has changed since it was listed. List it again.")
    return data


def digest_of(path: File, span: Span) -> int:
    """The CRC-32 of a chunk's bytes. Raises FormatError where the file has changed since it was listed."""
    digest, left = 0, span.length
    with path.open("rb", buffering=0) as file:
        file.seek(span.offset)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            digest, left = crc32(piece, digest), left - len(piece)
    if left:
        raise FormatError(f"{path} ends inside the chunk at {span.offset}; it has been cut short since it was listed.")
    return digest


def too_large(path: File | str, offset: int, length: int) -> FormatError:
    """A piece of a file that cannot be divided and is too long to be read."""
    return FormatError(
        f"{path}, offset {offset}: {length} bytes cannot be read at once; at most {MAX_CHUNK_BYTES} are taken."
    )


def read_all(read: Callable[[int], bytes], length: int) -> bytes:
    """So many bytes; fewer where there are no more."""
    data = read(length)
    while 0 < len(data) < length and (more := read(length - len(data))):
        data += more
    return data
