"""The byte format of a checkpoint file. Pure.

``DCK1``, the length of the header (u32), the header as JSON, then the blocks, and 24 bytes: the length of all that
(u64) and its MD5. Before each block are 16 bytes (array, block, size, CRC of the numbers; u32 each). All numbers are
little-endian. Array number ``tensor * kinds + kind`` is the parameter itself (kind 0) or an array of its optimiser's
state. After the parameters come tables in pieces: of piece ``block`` of table n, array ``ROWS + n * ROW_KINDS`` has the
ids (i64), the next one the numbers of updates (i32), then come values and state (f32).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runtime.checkpoint.data_position import Progress
from runtime.errors import RegattaError
from runtime.messages import training as messages

MAGIC = b"DCK1"
PREFIX = struct.Struct("<4sI")
BLOCK = struct.Struct("<IIII")
TRAILER = struct.Struct("<Q16s")
# A header lists the parameters by name; a longer one is not of this format.
LONGEST_HEADER = 64 << 20

# The number of the first array of a table; no parameter reaches it.
ROWS = 1 << 31
# No table has more arrays.
ROW_KINDS = 16

Buffer = bytes | bytearray | memoryview


class Damaged(RegattaError):
    """A file is no checkpoint, is truncated, or contains other bytes than were written."""


@dataclass(frozen=True)
class Header:
    """What a file contains: the blocks of server ``shard`` of ``shards`` at ``version``.

    ``declaration`` is ``Declaration.to_json()``; ``kinds`` counts the arrays of each block; ``sequences`` is the number
    of the last request of each trainer, by incarnation, that the version contains. ``tables`` has for each table its
    declaration (``table``), the number of ``pieces`` and the number of arrays of each (``kinds``).

    ``progress`` is the position in the data, ``Progress.to_json()``. ``rounds`` is the position of learning rate
    schedules; None in files of earlier releases, where it is the version.
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
    tables: Sequence[Mapping[str, Any]] = field(default_factory=list)
    progress: Mapping[str, Any] = field(default_factory=lambda: Progress().to_json())
    rounds: float | None = None

    @property
    def frames(self) -> int:
        """The number of blocks in the file, of parameters and of tables."""
        return self.blocks * self.kinds + sum(int(table["pieces"] * table["kinds"]) for table in self.tables)

    def to_bytes(self) -> bytes:
        """The bytes before the first block."""
        body = json.dumps(asdict(self), separators=(",", ":")).encode()
        return PREFIX.pack(MAGIC, len(body)) + body

    @classmethod
    def from_bytes(cls, body: Buffer) -> Header:
        """Read the JSON. Raises Damaged."""
        try:
            header = cls(**json.loads(bytes(body)))
            header.frames  # noqa: B018  it is read before the checksum is known
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Damaged(messages.HEADER_UNREADABLE(error=error)) from None
        return header


def row_keys(number: int, kinds: int, piece: int) -> Sequence[tuple[int, int]]:
    """The keys of the arrays of a piece of table ``number`` in a file: array and block of each."""
    return [(ROWS + number * ROW_KINDS + kind, piece) for kind in range(kinds)]


def header_length(prefix: Buffer) -> int:
    """The number of bytes of JSON after the first eight. Raises Damaged."""
    magic, length = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise Damaged(messages.NOT_A_CHECKPOINT())
    if length > LONGEST_HEADER:
        raise Damaged(messages.HEADER_TOO_LONG(count=length))
    return int(length)


def block_head(array: int, block: int, numbers: Buffer) -> bytes:
    """The 16 bytes before ``numbers``."""
    return BLOCK.pack(array, block, memoryview(numbers).nbytes, zlib.crc32(numbers))


def verify_block(array: int, block: int, crc: int, numbers: Buffer) -> None:
    """Raises Damaged if the numbers are not those that were written."""
    if zlib.crc32(numbers) != crc:
        raise Damaged(messages.BLOCK_CHECKSUM_MISMATCH(block=block, array=array))
