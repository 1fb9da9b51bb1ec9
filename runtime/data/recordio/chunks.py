"""Codec of one chunk: a header, and a payload with a u32 length and the bytes of each record when decompressed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from runtime.data.checksums import crc32
from runtime.data.recordio.compression import Payload, compress, decompress
from runtime.data.recordio.header import HEADER_BYTES, LENGTH_BYTES, NONE, Header, RecordIOError
from runtime.messages import data as messages

_LENGTH = struct.Struct("<I")


def encode_chunk(records: Sequence[bytes], compressor: int = NONE) -> bytes:
    """Return one whole chunk. The same records produce the same bytes."""
    pieces = [piece for record in records for piece in (_LENGTH.pack(len(record)), record)]
    stored = compress(compressor, b"".join(pieces))
    return Header(crc32(stored), compressor, len(stored), len(records)).pack() + stored


def decode_chunk(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield the records of one whole chunk. All of it is checked before the first record is yielded."""
    return map(bytes, views(data))


def views(data: bytes | memoryview) -> list[memoryview]:
    """Return the records as views, without a copy. They keep the chunk in memory as long as one of them exists."""
    payload, records = unpack(data)
    return split(memoryview(payload), records)


def unpack(data: bytes | memoryview) -> tuple[Payload, int]:
    """Return the payload of one whole chunk and the number of records that it announces. Raises RecordIOError."""
    view = memoryview(data)
    header = Header.unpack(view[:HEADER_BYTES])
    stored = view[HEADER_BYTES:]
    if header.size != len(stored):
        raise RecordIOError(messages.CHUNK_SIZE_MISMATCH(announced=header.size, count=len(stored)))
    if crc32(stored) != header.crc:
        raise RecordIOError(messages.CHUNK_CHECKSUM_MISMATCH())
    return decompress(header.compressor, stored), header.records


def split(payload: memoryview, count: int) -> list[memoryview]:
    """Return the records of a payload. Raises RecordIOError if they are not ``count``, or do not end where it does."""
    size = len(payload)
    if count * LENGTH_BYTES > size:
        raise RecordIOError(messages.CHUNK_RECORDS_EXCEED_SIZE(count=count, most=size // LENGTH_BYTES))
    unpack_length = _LENGTH.unpack_from
    records: list[memoryview] = []
    end = 0
    try:
        # A record that is too long leads beyond the payload: the next length is missing, or the last end is not the
        # payload's.
        for _number in range(count):
            begin = end + LENGTH_BYTES
            end = begin + unpack_length(payload, end)[0]
            records.append(payload[begin:end])
    except struct.error:
        raise RecordIOError(messages.CHUNK_RECORD_TOO_LONG()) from None
    if end != size:
        raise RecordIOError(messages.CHUNK_END_MISMATCH(count=count, end=end, size=size))
    return records
