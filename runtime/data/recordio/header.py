"""Header of a chunk: 20 bytes, five little-endian u32.

The Go implementation of 2017 writes magic, CRC-32 of the payload as stored, compressor, bytes of the payload as stored,
number of records. The later C++ one (Fluid) has the same magic and writes magic, number of records, CRC-32, compressor,
bytes. No field identifies the order, but only one of the two makes sense: a compressor is 0, 1 or 2, and where one
order has it, the other has a checksum. Both are read, and the first is written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from runtime.data.errors import FormatError
from runtime.messages import data as messages

MAGIC = 0x01020304
MAGIC_BYTES = struct.pack("<I", MAGIC)
NONE, SNAPPY, GZIP = 0, 1, 2
COMPRESSORS: Mapping[str, int] = {"none": NONE, "snappy": SNAPPY, "gzip": GZIP}
HEADER_BYTES = 20
LENGTH_BYTES = 4

_WORDS = struct.Struct("<5I")


class RecordIOError(FormatError):
    """The bytes are not RecordIO, are damaged, or use an unsupported feature."""


class Header(NamedTuple):
    """Header of a payload of ``size`` bytes as stored."""

    crc: int
    compressor: int
    size: int
    records: int

    def pack(self) -> bytes:
        return _WORDS.pack(MAGIC, *self)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header:
        """Read a header in either order of its fields. One that makes sense in neither order is read in the first."""
        if len(data) != HEADER_BYTES:
            raise RecordIOError(messages.CHUNK_TOO_SHORT(least=HEADER_BYTES, count=len(data)))
        magic, *words = _WORDS.unpack(data)
        if magic != MAGIC:
            raise RecordIOError(messages.CHUNK_MAGIC_MISMATCH(found=f"{magic:08x}", expected=f"{MAGIC:08x}"))
        ours, other = cls(*words), cls(words[1], words[2], words[3], words[0])
        return other if not ours.makes_sense and other.makes_sense else ours

    @property
    def makes_sense(self) -> bool:
        """Return whether this can be the header of a chunk that a writer produced."""
        if self.compressor not in COMPRESSORS.values():
            return False
        # Compressed, even empty records take some bytes; how many depends on the compressor.
        return self.compressor != NONE or self.records * LENGTH_BYTES <= self.size
