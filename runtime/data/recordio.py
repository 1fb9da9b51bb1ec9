"""RecordIO: records packed into chunks that can be read on their own.

A file is chunks back to back, without header or footer. A chunk is a header of five little-endian u32 (magic, CRC-32
of the payload as stored, compressor, bytes of the payload as stored, number of records) and a payload; decompressed,
that is for each record a u32 length and its bytes. An empty file is legal, so is an empty record. This is the byte
order of the Go implementation of 2017; the later C++ one put the fields in another order and is refused.

Headers are covered by no checksum, so every size is checked against the file before it is believed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from runtime.errors import RegattaError

MAGIC = 0x01020304
NONE, SNAPPY, GZIP = 0, 1, 2
DEFAULT_CHUNK_BYTES = 32 << 20
# More than any writer makes; a damaged or hostile file must not fill the memory.
MAX_PAYLOAD_BYTES = 512 << 20

_HEADER = struct.Struct("<5I")
_LENGTH = struct.Struct("<I")
_GZIP_WINDOW = 31


class RecordIOError(RegattaError):
    """The bytes are no RecordIO, are damaged, or use something that this reader does not have."""


class Header(NamedTuple):
    """The 20 bytes before a chunk's payload."""

    crc: int
    compressor: int
    size: int
    records: int

    def pack(self) -> bytes:
        return _HEADER.pack(MAGIC, *self)

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        magic, *fields = _HEADER.unpack(data)
        if magic != MAGIC:
            raise RecordIOError(f"No chunk begins here: found {magic:08x} where {MAGIC:08x} is due.")
        return cls(*fields)


class Span(NamedTuple):
    """Where a chunk lies in its file, header included."""

    offset: int
    length: int
    records: int


class Writer:
    """Writes records to a binary file. Closing flushes the last chunk and leaves the file open.

    A record that would make the chunk longer than ``chunk_bytes`` (of raw record bytes) begins the next; 0 makes one
    chunk a record. ``flush`` ends a chunk early.
    """

    def __init__(self, file: IO[bytes], *, compressor: int = NONE, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        if compressor not in _COMPRESS:
            raise RecordIOError(f"Chunks can be written plain or with gzip, not with compressor {compressor}.")
        self._file = file
        self._compressor = compressor
        self._chunk_bytes = chunk_bytes
        self._records: list[bytes] = []
        self._size = 0
        self._closed = False

    def write(self, record: bytes) -> int:
        """Add one record; returns its length."""
        if self._closed:
            raise RecordIOError("This writer is closed; open another to write more.")
        if self._size + len(record) > self._chunk_bytes:
            self.flush()
        self._records.append(record)
        self._size += len(record)
        return len(record)

    def flush(self) -> None:
        """End the chunk. Nothing is written when it is empty."""
        if self._records:
            self._file.write(encode_chunk(self._records, self._compressor))
        self._records, self._size = [], 0

    def close(self) -> None:
        self.flush()
        self._closed = True

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


def encode_chunk(records: list[bytes], compressor: int = NONE) -> bytes:
    """One whole chunk. The same records give the same bytes."""
    payload = b"".join(_LENGTH.pack(len(record)) + record for record in records)
    stored = _COMPRESS[compressor](payload)
    return Header(zlib.crc32(stored), compressor, len(stored), len(records)).pack() + stored


def decode_chunk(data: bytes) -> Iterator[bytes]:
    """The records of one whole chunk; all of it is checked before the first is given."""
    if len(data) < _HEADER.size:
        raise RecordIOError(f"A chunk is at least {_HEADER.size} bytes long, this one has {len(data)}.")
    header = Header.unpack(data[: _HEADER.size])
    stored = data[_HEADER.size :]
    if header.size != len(stored):
        raise RecordIOError(f"The chunk announces {header.size} bytes and has {len(stored)}.")
    if zlib.crc32(stored) != header.crc:
        raise RecordIOError("The chunk is damaged: its checksum does not fit. Restore the file from its source.")
    if header.compressor not in _DECOMPRESS:
        raise RecordIOError(_unknown_compressor(header.compressor))
    return iter(_split(_DECOMPRESS[header.compressor](stored), header.records))


def scan(path: Path) -> tuple[Span, ...]:
    """Find the chunks of a file by hopping from header to header, without reading payloads.

    Raises RecordIOError for foreign bytes and for a file that ends inside a chunk, OSError if it cannot be read.
    """
    size = path.stat().st_size
    spans: list[Span] = []
    offset = 0
    with path.open("rb") as file:
        while offset < size:
            file.seek(offset)
            spans.append(_span(file.read(_HEADER.size), offset, size, path))
            offset += spans[-1].length
    return tuple(spans)


def read(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """The records of the chunk at ``offset``."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    if len(data) != length:
        raise RecordIOError(f"{path} ends inside the chunk at {offset}; it has been cut short since it was listed.")
    try:
        return decode_chunk(data)
    except RecordIOError as error:
        raise RecordIOError(f"{path}, chunk at {offset}: {error}") from error


def _span(data: bytes, offset: int, size: int, path: Path) -> Span:
    where = f"{path}, offset {offset}"
    if len(data) < _HEADER.size:
        raise RecordIOError(f"{where}: the file ends inside a chunk's header. It was cut short; copy it again.")
    try:
        header = Header.unpack(data)
    except RecordIOError as error:
        raise RecordIOError(f"{where}: {error}") from error
    if header.compressor not in _DECOMPRESS:
        raise RecordIOError(f"{where}: {_unknown_compressor(header.compressor)}")
    length = _HEADER.size + header.size
    if offset + length > size:
        raise RecordIOError(f"{where}: the file ends inside this chunk. It was cut short; copy it again.")
    return Span(offset, length, header.records)


def _split(payload: bytes, count: int) -> list[bytes]:
    records: list[bytes] = []
    offset = 0
    while offset < len(payload):
        begin = offset + _LENGTH.size
        if begin > len(payload):
            raise RecordIOError("The chunk is damaged: it ends inside a record's length.")
        offset = begin + _LENGTH.unpack_from(payload, offset)[0]
        if offset > len(payload):
            raise RecordIOError("The chunk is damaged: a record is longer than what is left of the chunk.")
        records.append(payload[begin:offset])
    if len(records) != count:
        raise RecordIOError(f"The chunk announces {count} records and has {len(records)}.")
    return records


def _unknown_compressor(compressor: int) -> str:
    if compressor == SNAPPY:
        return "The chunk is compressed with snappy, which this build does not read. Write it plain or with gzip."
    return (
        f"The chunk names compressor {compressor}; known are 0 (none) and 2 (gzip). "
        "Files of the C++ implementation have their fields in another order; convert them first."
    )


def _gzip(payload: bytes) -> bytes:
    # Not gzip.compress: no time of writing may enter, so that the same records give the same bytes.
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(payload) + packer.flush()


def _gunzip(stored: bytes) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        payload = unpacker.decompress(stored, MAX_PAYLOAD_BYTES)
    except zlib.error as error:
        raise RecordIOError(f"The chunk's gzip data is damaged ({error}).") from error
    if unpacker.unconsumed_tail:
        raise RecordIOError(f"The chunk unpacks to more than {MAX_PAYLOAD_BYTES} bytes; write smaller chunks.")
    if not unpacker.eof or unpacker.unused_data:
        raise RecordIOError("The chunk's gzip data does not end where the chunk does.")
    return payload


def _plain(payload: bytes) -> bytes:
    return payload


_COMPRESS = {NONE: _plain, GZIP: _gzip}
_DECOMPRESS = {NONE: _plain, GZIP: _gunzip}
