"""TFRecord: for each record a u64 length, its masked CRC-32C, the bytes, and their masked CRC-32C.

The index reads from length to length and checks each. The bytes are checked when they are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO

from runtime.data.checksums import crc32c, crc32c_of_each, has_crc32c, masked
from runtime.data.errors import FormatError
from runtime.data.formats.base import File, read_bytes, too_large
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages

_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_AROUND = _HEAD.size + _CHECKSUM.size
_BUFFER_BYTES = 1 << 20


def recognise(head: bytes) -> bool:
    # Without the package a file is of another format, or a TFRecord by its name: reading that names the package.
    return has_crc32c() and len(head) >= _HEAD.size and _length(head) is not None


def index(path: File, chunk_bytes: int) -> Iterator[Span]:
    size = path.stat().st_size
    begin = offset = records = 0
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        while offset < size:
            length = _hop(path, file, offset, size)
            if records and offset + length - begin > chunk_bytes:
                yield Span(begin, offset - begin, records)
                begin, records = offset, 0
            offset += length
            records += 1
    if records:
        yield Span(begin, offset - begin, records)


def read(path: File, span: Span) -> Iterator[bytes]:
    data = read_bytes(path, span)
    begins, ends = _places(path, span, data)
    for begin, end, crc in zip(begins, ends, crc32c_of_each(data, begins, ends), strict=True):
        if masked(crc) != _CHECKSUM.unpack_from(data, end)[0]:
            where = messages.OFFSET_PLACE(path=path, offset=span.offset + begin)
            raise FormatError(messages.RECORD_CHECKSUM_MISMATCH(where=where))
    return (data[begin:end] for begin, end in zip(begins, ends, strict=True))


def write(file: IO[bytes], record: bytes) -> None:
    """Append one record to a file."""
    length = struct.pack("<Q", len(record))
    file.write(length + _CHECKSUM.pack(masked(crc32c(length))))
    file.write(record)
    file.write(_CHECKSUM.pack(masked(crc32c(record))))


def _hop(path: File, file: IO[bytes], offset: int, size: int) -> int:
    """Return the length of the record at ``offset`` with its framing. The file's position is then after it."""
    head = file.read(_HEAD.size)
    length = _length(head) if len(head) == _HEAD.size else None
    if length is None:
        raise _no_record(path, offset)
    if offset + length + _AROUND > size:
        raise FormatError(messages.RECORD_TRUNCATED(where=messages.OFFSET_PLACE(path=path, offset=offset)))
    if length + _AROUND > MAX_CHUNK_BYTES:
        raise too_large(path, offset, length)
    file.seek(length + _CHECKSUM.size, os.SEEK_CUR)
    return length + _AROUND


def _places(path: File, span: Span, data: bytes) -> tuple[list[int], list[int]]:
    begins, ends = [], []
    at = 0
    while at < len(data):
        length = _length(data[at : at + _HEAD.size]) if at + _AROUND <= len(data) else None
        if length is None or at + length + _AROUND > len(data):
            raise _no_record(path, span.offset + at)
        begins.append(at + _HEAD.size)
        ends.append(at + _HEAD.size + length)
        at += length + _AROUND
    if len(begins) != span.records:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return begins, ends


def _length(head: bytes) -> int | None:
    """Return the length in a record's head, if its checksum is correct."""
    length, checksum = _HEAD.unpack_from(head)
    return int(length) if masked(crc32c(head[:8])) == checksum else None


def _no_record(path: File, offset: int) -> FormatError:
    return FormatError(messages.TFRECORD_MISSING(where=messages.OFFSET_PLACE(path=path, offset=offset)))
