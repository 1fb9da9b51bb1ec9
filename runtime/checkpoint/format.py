"""The bytes of a checkpoint file. Pure.

``DCK1``, the length of the header (u32), the header as JSON, then blocks, each behind 16 bytes (array, block, size, CRC
of the numbers; u32 each), then 24 bytes: the length of all that (u64) and its MD5. All numbers are little-endian. Array
number ``tensor * kinds + kind`` is the parameter itself (kind 0) or an array of its optimiser's state.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from runtime.errors import RegattaError

MAGIC = b"DCK1"
PREFIX = struct.Struct("<4sI")
BLOCK = struct.Struct("<IIII")
TRAILER = struct.Struct("<Q16s")
# A header lists the parameters by name; one of this size is none of ours.
LONGEST_HEADER = 64 << 20

Buffer = bytes | bytearray | memoryview


class Damaged(RegattaError):
    """A file is no checkpoint, is cut off, or holds other bytes than were written."""


@dataclass(frozen=True)
class Header:
    """What a file holds: the blocks of server ``shard`` of ``shards`` at ``version``.

    ``declaration`` is ``Declaration.to_json()``; ``kinds`` counts the arrays of each block; ``sequences`` is the number
    of the last request of each trainer, by incarnation, that the version contains.
    """

    job: str
    shard: int
    shards: int
    incarnation: int
    version: int
    declaration: Mapping[str, Any]
    kinds: int
    blocks: int
    sequences: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Everything before the first block."""
        body = json.dumps(asdict(self), separators=(",", ":")).encode()
        return PREFIX.pack(MAGIC, len(body)) + body

    @classmethod
    def from_bytes(cls, body: Buffer) -> Header:
        """Read the JSON. Raises Damaged."""
        try:
            return cls(**json.loads(bytes(body)))
        except (ValueError, TypeError) as error:
            raise Damaged(f"its header cannot be read ({error})") from None


def header_length(prefix: Buffer) -> int:
    """The bytes of JSON that follow the first eight. Raises Damaged."""
    magic, length = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise Damaged("it is no checkpoint")
    if length > LONGEST_HEADER:
        raise Damaged(f"its header claims {length} bytes")
    return int(length)


def block_head(array: int, block: int, numbers: Buffer) -> bytes:
    """The 16 bytes that go before ``numbers``."""
    return BLOCK.pack(array, block, memoryview(numbers).nbytes, zlib.crc32(numbers))


def verify_block(array: int, block: int, crc: int, numbers: Buffer) -> None:
    """Raises Damaged where the numbers are others than were written."""
    if zlib.crc32(numbers) != crc:
        raise Damaged(f"block {block} of array {array} fails its checksum")
