"""Snappy's framing format: a stream of frames of at most 64 KiB of data, each with a masked CRC-32C of it.

A frame is a type byte, a u24 length and that many bytes. Type ff begins a stream; 00 holds the checksum and compressed
data, 01 the checksum and uncompressed data; fe is padding; 80 to fd may be skipped; all others may not. Compressed data
is a varint of its unpacked length, then literals and copies of earlier data (Google's format description).

The package ``cramjam`` does this in compiled code if it is installed. The Python code here does the same, slowly: about
30 MB/s of data with many copies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import ModuleType

from runtime.data.checksums import crc32c, masked
from runtime.data.optional_imports import find
from runtime.data.recordio.header import RecordIOError
from runtime.messages import data as messages

STREAM_IDENTIFIER = bytes.fromhex("ff060000734e61507059")
FRAME_BYTES = 1 << 16

_COMPRESSED, _PLAIN, _PADDING, _IDENTIFIER = 0x00, 0x01, 0xFE, 0xFF
_SKIPPABLE = range(0x80, 0xFE)
_CHECKSUM = struct.Struct("<I")
_HEAD_BYTES = 4
# Data that saves less than an eighth is stored uncompressed, as other writers do.
_WORTH = 8
_LEAST_COPY, _MOST_COPY = 4, 64
_TAGS = {1: 1, 2: 2, 3: 4}  # kind of copy: bytes of its offset after the tag
_LONG_LITERAL = 60

_cramjam: ModuleType | None = find("cramjam")


def compress(data: bytes) -> bytes:
    """Return one stream with all of ``data``."""
    if _cramjam is not None and data:  # it makes no stream of empty data
        return bytes(_cramjam.snappy.compress(data))
    frames = (data[begin : begin + FRAME_BYTES] for begin in range(0, len(data), FRAME_BYTES))
    return STREAM_IDENTIFIER + b"".join(map(_frame, frames))


def decompress(stored: bytes | memoryview, most: int) -> bytes | bytearray:
    """Return the content of a stream.

    Raises RecordIOError if it is damaged or would be longer than ``most`` bytes, before any memory is allocated for
    that.
    """
    frames = list(_frames(memoryview(stored)))
    size = sum(length for _kind, _body, length in frames)
    if size > most:
        raise RecordIOError(messages.CHUNK_UNPACKS_TOO_LARGE(most=most))
    if _cramjam is None:
        return b"".join(_unframe(kind, body, length) for kind, body, length in frames)
    data = bytearray(size)
    try:
        written = _cramjam.snappy.decompress_into(stored, data) if size else 0
    except Exception as error:  # cramjam's own exception, or one of Rust's: the stream is damaged either way
        raise _damaged(str(error)) from error
    if written != size:
        raise _damaged("it holds less than it announces")
    return data


def _damaged(how: str) -> RecordIOError:
    return RecordIOError(messages.CHUNK_SNAPPY_DAMAGED(error=how))


# --- Frames ----------------------------------------------------------------------------------------------------------
def _frame(data: bytes) -> bytes:
    packed = _pack(data)
    kind, body = (_COMPRESSED, packed) if len(packed) < len(data) - len(data) // _WORTH else (_PLAIN, data)
    body = _CHECKSUM.pack(masked(crc32c(data))) + body
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def _frames(stored: memoryview) -> Iterator[tuple[int, memoryview, int]]:
    """Yield the frames that hold data: kind, body with its checksum, number of unpacked bytes."""
    if bytes(stored[: len(STREAM_IDENTIFIER)]) != STREAM_IDENTIFIER:
        raise _damaged("it does not begin as a stream does")
    at = len(STREAM_IDENTIFIER)
    while at < len(stored):
        kind, length = stored[at], int.from_bytes(stored[at + 1 : at + _HEAD_BYTES], "little")
        begin, at = at + _HEAD_BYTES, at + _HEAD_BYTES + length
        if at > len(stored):
            raise _damaged("it ends inside a frame")
        body = stored[begin:at]
        if kind in (_COMPRESSED, _PLAIN):
            yield kind, body, _announced(kind, body)
        elif kind == _IDENTIFIER:
            if bytes(stored[begin - _HEAD_BYTES : at]) != STREAM_IDENTIFIER:
                raise _damaged("a stream in it begins wrongly")
        elif kind != _PADDING and kind not in _SKIPPABLE:
            raise _damaged(f"it has a frame of the unknown type {kind:02x}")


def _announced(kind: int, body: memoryview) -> int:
    if len(body) < _CHECKSUM.size:
        raise _damaged("a frame is too short")
    length = len(body) - _CHECKSUM.size if kind == _PLAIN else _varint(body[_CHECKSUM.size :])[0]
    if length > FRAME_BYTES:
        raise _damaged("a frame is too long")
    return length


def _unframe(kind: int, body: memoryview, length: int) -> bytes | bytearray:
    content = body[_CHECKSUM.size :]
    data = bytes(content) if kind == _PLAIN else _unpack(content, length)
    if masked(crc32c(data)) != _CHECKSUM.unpack_from(body)[0]:
        raise _damaged("a checksum does not fit")
    return data


def _varint(data: memoryview) -> tuple[int, int]:
    """Return a length, and the number of bytes that it took."""
    value = 0
    for count, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, count + 1
    raise _damaged("a frame has no length")


# --- Compressed data -------------------------------------------------------------------------------------------------
def _unpack(packed: memoryview, length: int) -> bytearray:
    data = bytearray()
    at = _varint(packed)[1]
    while at < len(packed):
        tag = packed[at]
        at += 1
        if tag & 3 == 0:
            at = _literal(packed, at, tag >> 2, data)
        else:
            at = _copy(packed, at, tag, data)
        if len(data) > length:
            raise _damaged("a frame holds more than it announces")
    if len(data) != length:
        raise _damaged("a frame holds less than it announces")
    return data


def _literal(packed: memoryview, at: int, length: int, data: bytearray) -> int:
    if length >= _LONG_LITERAL:
        size = length - _LONG_LITERAL + 1
        length = int.from_bytes(packed[at : at + size], "little")
        at += size
    end = at + length + 1
    if end > len(packed):
        raise _damaged("a literal is cut off")
    data += packed[at:end]
    return end


def _copy(packed: memoryview, at: int, tag: int, data: bytearray) -> int:
    end = at + _TAGS[tag & 3]
    if end > len(packed):
        raise _damaged("a copy is cut off")
    offset = int.from_bytes(packed[at:end], "little")
    length = (tag >> 2) + 1
    if tag & 3 == 1:
        offset |= (tag >> 5) << 8
        length = (tag >> 2 & 7) + _LEAST_COPY
    if not 0 < offset <= len(data):
        raise _damaged("a copy is of what was never there")
    begin = len(data) - offset
    # A copy may overlap its own output: then it repeats the last ``offset`` bytes.
    pattern = bytes(data[begin : begin + length])
    data += (pattern * (length // len(pattern) + 1))[:length]
    return end


def _pack(data: bytes) -> bytes:
    """Compress greedily: copy from the last place with the same four bytes, as far as it matches.

    After a long distance without a match, more and more places are skipped.
    """
    size = len(data)
    packed = bytearray(_to_varint(size))
    last: dict[bytes, int] = {}
    at = begin = misses = 0
    while at + _LEAST_COPY <= size:
        word = data[at : at + _LEAST_COPY]
        found = last.get(word)
        last[word] = at
        if found is None:
            misses += 1
            at += 1 + (misses >> 5)
            continue
        length = _match(data, found, at)
        packed += _packed_literal(data[begin:at]) + _packed_copies(at - found, length)
        at = begin = at + length
        misses = 0
    return bytes(packed + _packed_literal(data[begin:]))


def _match(data: bytes, earlier: int, at: int) -> int:
    """Return how many bytes are the same at both places."""
    length, step = _LEAST_COPY, 64
    while step:
        while data[earlier + length : earlier + length + step] == data[at + length : at + length + step] != b"":
            length += min(step, len(data) - at - length)
        step //= 4
    return length


def _packed_literal(data: bytes) -> bytes:
    if not data:
        return b""
    length = len(data) - 1
    if length < _LONG_LITERAL:
        return bytes([length << 2]) + data
    size = (length.bit_length() + 7) // 8
    return bytes([(_LONG_LITERAL - 1 + size) << 2]) + length.to_bytes(size, "little") + data


def _packed_copies(offset: int, length: int) -> bytes:
    """Return copies with an offset of two bytes, which is enough within a frame."""
    full, rest = divmod(length, _MOST_COPY)
    lengths = [_MOST_COPY] * full + [rest] * bool(rest)
    return b"".join(bytes([(part - 1) << 2 | 2]) + offset.to_bytes(2, "little") for part in lengths)


def _to_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
