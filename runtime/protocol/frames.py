"""Frames: a fixed header of 64 little-endian bytes and a payload of at most 1 MiB. Pure: no function uses a socket.

The payload is either UTF-8 JSON (head frames) or raw little-endian numbers (``Op.BLOCK``). The checksum covers the
first 60 bytes of the header and the payload. For JSON it is the CRC-32 of both. For numbers it is the CRC-32 of the
header plus the sum of the payload's 32-bit words, because a CRC over every gradient takes longer than the rest of a
step together. The sum detects every damage that is confined to one word, and TCP has checked the bytes before.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np

from runtime.errors import WireError
from runtime.messages import paragraph
from runtime.messages import training as messages

MAGIC = b"DPS1"
VERSION = 3
HEADER_BYTES = 64
MAX_PAYLOAD = 1 << 20

# The code sent to a peer whose bytes were invalid.
BAD_FRAME = "bad_frame"
# The code sent to a peer whose request arrived again over another connection and is answered there.
SUPERSEDED = "superseded"

Buffer = bytes | bytearray | memoryview

# magic, version, op, flags, job crc, shard, incarnation, expected, seq, shard version, tensor, offset, payload, crc
_LAYOUT = struct.Struct("<4sBBHIIQQQQIIII")
_UNSIGNED = struct.Struct("<I")
_CRC_AT = HEADER_BYTES - _UNSIGNED.size
_WORD_MASK = 0xFFFFFFFF


class Op(IntEnum):
    """The operation of a frame. A reply carries the op of its request."""

    HELLO = 1
    DECLARE = 2
    INIT = 3
    PUSH = 5
    PUSH_PULL = 6
    PULL = 7
    BLOCK = 8  # numbers of one block, after a head frame
    BEGIN_PASS = 9
    END_PASS = 10
    STATUS = 11
    BYE = 12
    RESEED_OFFER = 4  # a declaration by a trainer that has values already
    RESEED = 14  # the values of a trainer, for a server that lost its own
    ROWS_PULL = 15  # rows of a table by their ids; a push carries rows beside its blocks
    STAGE = 23  # blocks of the gradients of the next push; not answered
    SHARE = 13  # numbers are passed in memory that both processes map
    TASK_GET = 16
    TASK_DONE = 17
    TASK_FAIL = 18
    TASK_RELEASE = 19
    TASK_EXTEND = 20
    SAVE_REQUEST = 21
    EVENTS = 22
    TASK_AHEAD = 24  # the tasks of a trainer after its current one
    TASK_BEGUN = 25  # a trainer has begun a prefetched task; not answered
    AHEAD = 30  # only before a reply: blocks of a version in preparation, which the reply makes valid
    WAIT = 31  # only a reply: the answer takes longer, the server is alive


class Flag(IntFlag):
    """Low bits of the header's flags."""

    NONE = 0
    REPLY = 1
    ERROR = 2
    LAST = 4  # no further frame belongs to this message


class DType(IntEnum):
    """Type of the numbers of a block, bits 3 to 5 of the flags."""

    NONE = 0
    F32 = 1
    F64 = 2
    F16 = 3
    BF16 = 4
    I8 = 5
    I32 = 6
    I64 = 7


_DTYPE_SHIFT = 3
_DTYPE_MASK = 0b111
_FLAG_MASK = 0b111
# Enumerations are slow to compute with, so frames are packed and unpacked with plain numbers and tables.
_LAST, _ERROR = int(Flag.LAST), int(Flag.ERROR)
_FLAGS = tuple(map(Flag, range(_FLAG_MASK + 1)))
_DTYPES = tuple(map(DType, range(_DTYPE_MASK + 1)))
_OPS = {int(op): op for op in Op}


class Header(NamedTuple):
    """The fixed part of a frame. ``offset`` counts blocks within the tensor; ``version`` is the shard's."""

    op: Op
    flags: Flag = Flag.NONE
    dtype: DType = DType.NONE
    job: int = 0
    shard: int = 0
    incarnation: int = 0
    expected: int = 0
    seq: int = 0
    version: int = 0
    tensor: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0

    @property
    def last(self) -> bool:
        return bool(int(self.flags) & _LAST)

    @property
    def error(self) -> bool:
        return bool(int(self.flags) & _ERROR)


def job_crc(job_id: str, attempt: int) -> int:
    """Return the checksum that names the attempt in every frame, so that processes of other attempts are refused."""
    return zlib.crc32(f"{job_id}/{attempt}".encode())


def pack(header: Header, payload: Buffer = b"") -> bytes:
    """Return the 64 bytes before ``payload``; size and checksum of ``header`` are filled in here.

    The header of a block may have the ``words_sum`` of its payload in place of the checksum; then it is used.
    """
    size = memoryview(payload).nbytes
    if size > MAX_PAYLOAD:
        raise WireError(f"A frame holds at most {MAX_PAYLOAD} bytes, this one has {size}; split it into blocks.")
    flags = int(header.flags) | int(header.dtype) << _DTYPE_SHIFT
    numbers = (header.job, header.shard, header.incarnation, header.expected, header.seq, header.version)
    packed = _LAYOUT.pack(MAGIC, VERSION, header.op, flags, *numbers, header.tensor, header.offset, size, 0)
    return packed[:_CRC_AT] + _UNSIGNED.pack(_checksum(header.op, packed[:_CRC_AT], payload, header.crc))


def unpack(data: Buffer) -> Header:
    """Read a header. Raises WireError for foreign bytes, another version, an unknown op and an oversized payload."""
    if len(data) != HEADER_BYTES:
        raise WireError(f"A header has {HEADER_BYTES} bytes, {len(data)} came.")
    magic, version, op, flags, *numbers = _LAYOUT.unpack(data)
    if magic != MAGIC:
        raise WireError(f"These bytes are no frame: they begin with {magic.hex()} where {MAGIC.hex()} is due.")
    if version != VERSION:
        raise WireError(
            paragraph(messages.PROTOCOL_VERSIONS_DIFFER(theirs=version, ours=VERSION), messages.RERUN_FOR_ONE_VERSION())
        )
    dtype = flags >> _DTYPE_SHIFT & _DTYPE_MASK
    header = Header(_op(op), _FLAGS[flags & _FLAG_MASK], _DTYPES[dtype], *numbers)
    if header.size > MAX_PAYLOAD:
        raise WireError(f"The peer announces {header.size} bytes; a frame holds at most {MAX_PAYLOAD}.")
    return header


def _op(number: int) -> Op:
    try:
        return _OPS[number]
    except KeyError:
        raise WireError(f"The peer asks for operation {number}, which this version does not know.") from None


def verify(data: Buffer, header: Header, payload: Buffer) -> None:
    """Check the checksum of a frame that was read as ``data`` (64 bytes) and ``payload``."""
    crc = _checksum(header.op, memoryview(data)[:_CRC_AT], payload)
    if crc != header.crc:
        raise WireError(f"A frame was damaged on its way: checksum {crc:08x} instead of {header.crc:08x}.")


def words_sum(payload: Buffer) -> int:
    """The sum of the 32-bit words of a block's payload, without an incomplete last word."""
    return int(np.add.reduce(np.frombuffer(payload, "<u4", _whole(payload) // _UNSIGNED.size), dtype=np.uint32))


def _whole(payload: Buffer) -> int:
    return memoryview(payload).nbytes & ~(_UNSIGNED.size - 1)


def _checksum(op: Op, fixed: Buffer, payload: Buffer, summed: int = 0) -> int:
    """``summed``: the payload's ``words_sum`` if it is known."""
    crc = zlib.crc32(fixed)
    if op is not Op.BLOCK:
        return zlib.crc32(payload, crc)
    total = crc + (summed or words_sum(payload))
    return zlib.crc32(memoryview(payload)[_whole(payload) :], total & _WORD_MASK)


def to_json(body: Mapping[str, Any]) -> bytes:
    """Encode a control body. An empty one takes no bytes."""
    return _encode(body).encode() if body else b""


# Made once: json.dumps would make an encoder for each body, and json.loads would detect its encoding.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder().decode


def from_json(payload: Buffer) -> dict[str, Any]:
    """Read a control body; raises WireError if it is no JSON object."""
    if not len(payload):
        return {}
    try:
        body = _decode(str(payload, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"A control body is no JSON: {error}.") from None
    if not isinstance(body, dict):
        raise WireError(f"A control body is a JSON {type(body).__name__}; an object is due.")
    return body
