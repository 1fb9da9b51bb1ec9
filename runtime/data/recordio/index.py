"""Index of the chunks of a file: found from header to header or, after damage, by a search for the next chunk.

No payload is read for an index, however large the file. Headers have no checksum, so every size is checked against the
file before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runtime.data.recordio import chunks, compression
from runtime.data.recordio.files import Source
from runtime.data.recordio.header import COMPRESSORS, HEADER_BYTES, MAGIC_BYTES, Header, RecordIOError
from runtime.data.span import Span
from runtime.messages import data as messages

# Size of the window of the search for the next chunk.
_WINDOW_BYTES = 1 << 20


class Damage(NamedTuple):
    """Bytes from ``offset`` to ``end`` that belong to no whole chunk, and why."""

    offset: int
    end: int
    why: str


def scan(path: str | Path) -> tuple[Span, ...]:
    """Return the chunks of a file.

    Raises RecordIOError for foreign bytes and for a file that ends inside a chunk, and OSError if it cannot be read.
    """
    with Source(path) as source:
        return tuple(hop(source))


def hop(source: Source) -> Iterator[Span]:
    """Yield the chunks of a file one by one."""
    size = source.size()
    offset = 0
    while offset < size:
        span = _span(source, offset, size)
        yield span
        offset += span.length


def survey(source: Source) -> Iterator[Span | Damage]:
    """Yield everything in a file in order, with every chunk read and checked.

    Damage is followed by the next whole chunk.
    """
    size = source.size()
    offset = 0
    while offset < size:
        try:
            found: Span | Damage = _whole(source, offset, size)
        except RecordIOError as error:
            found = Damage(offset, _next(source, offset + 1, size), str(error))
        yield found
        offset = found.end if isinstance(found, Damage) else offset + found.length


def _next(source: Source, offset: int, size: int) -> int:
    """Return where the next whole chunk begins, or the end of the file if there is none."""
    while offset < size:
        window = source.read(offset, _WINDOW_BYTES)
        place = window.find(MAGIC_BYTES)
        if place < 0:
            # The magic may lie across two windows.
            offset += max(1, len(window) - len(MAGIC_BYTES) + 1)
            continue
        offset += place
        try:
            _whole(source, offset, size)
        except RecordIOError:
            offset += 1
        else:
            return offset
    return size


def _whole(source: Source, offset: int, size: int) -> Span:
    """Return the chunk at ``offset``, if all of it is valid."""
    span = _span(source, offset, size)
    try:
        chunks.views(source.read(span.offset, span.length))
    except RecordIOError as error:
        raise RecordIOError(f"{source.name}, chunk at {offset}: {error}") from error
    return span


def _span(source: Source, offset: int, size: int) -> Span:
    where = messages.OFFSET_PLACE(path=source.name, offset=offset)
    head = source.read(offset, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        raise RecordIOError(messages.CHUNK_HEADER_TRUNCATED(where=where))
    try:
        header = Header.unpack(head)
        if header.compressor not in COMPRESSORS.values():
            raise compression.unknown(header.compressor)
    except RecordIOError as error:
        raise RecordIOError(f"{where}: {error}") from error
    length = HEADER_BYTES + header.size
    if header.size > compression.MAX_PAYLOAD_BYTES:
        raise RecordIOError(messages.CHUNK_TOO_LARGE(where=where, size=header.size, most=compression.MAX_PAYLOAD_BYTES))
    if offset + length > size:
        raise RecordIOError(messages.CHUNK_TRUNCATED(where=where))
    return Span(offset, length, header.records, header.crc)
