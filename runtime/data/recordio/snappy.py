"""Snappy's framing format: a stream of frames of at most 64 KiB of data, each with a masked CRC-32C of it.

A frame is a type byte, a u24 length and that many bytes. Type ff begins a stream; 00 holds the checksum and compressed
data, 01 the checksum and uncompressed data; fe is padding; 80 to fd may be skipped; all others may not. Compressed data
is a varint of its unpacked length, then literals and copies of earlier data (Google's format description).

The package ``cramjam`` compresses and unpacks. The code here reads the heads of the frames: their lengths limit the
memory before any is allocated, and frames without data, whose length ``cramjam`` limits, are left out. An environment
of a job may lack the package; the functions then raise UsageError, which names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from runtime.data.optional_imports import find, need
from runtime.data.recordio.header import RecordIOError
from runtime.messages import data as messages

STREAM_IDENTIFIER = bytes.fromhex("ff060000734e61507059")
FRAME_BYTES = 1 << 16

_COMPRESSED, _PLAIN, _PADDING, _IDENTIFIER = 0x00, 0x01, 0xFE, 0xFF
_SKIPPABLE = range(0x80, 0xFE)
_HEAD_BYTES, _CHECKSUM_BYTES = 4, 4

_cramjam: ModuleType | None = find("cramjam")


def compress(data: bytes) -> bytes:
    """Return one stream with all of ``data``."""
    cramjam = _cramjam or _needed()
    # Of empty data the package makes no stream.
    return bytes(cramjam.snappy.compress(data)) if data else STREAM_IDENTIFIER


def decompress(stored: bytes | memoryview, most: int) -> bytes | bytearray:
    """Return the content of a stream.

    Raises RecordIOError if it is damaged or would be longer than ``most`` bytes, before any memory is allocated for
    that.
    """
    cramjam, view = _cramjam or _needed(), memoryview(stored)
    frames = list(_frames(view))
    size = sum(length for _frame, length in frames)
    if size > most:
        raise RecordIOError(messages.CHUNK_UNPACKS_TOO_LARGE(most=most))
    if len(STREAM_IDENTIFIER) + sum(len(frame) for frame, _length in frames) != len(view):
        stored = b"".join((STREAM_IDENTIFIER, *(frame for frame, _length in frames)))
    data = bytearray(size)
    try:
        written = cramjam.snappy.decompress_into(stored, data) if size else 0
    except Exception as error:  # cramjam's own exception, or one of Rust's: the stream is damaged either way
        raise _damaged(str(error)) from error
    if written != size:
        raise _damaged("it holds less than it announces")
    return data


def _needed() -> ModuleType:
    return need("cramjam", "cramjam", "Snappy")


def _damaged(how: str) -> RecordIOError:
    return RecordIOError(messages.CHUNK_SNAPPY_DAMAGED(error=how))


def _frames(stored: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield the frames that hold data, each with the number of its unpacked bytes."""
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
            yield stored[begin - _HEAD_BYTES : at], _announced(kind, body)
        elif kind == _IDENTIFIER:
            if bytes(stored[begin - _HEAD_BYTES : at]) != STREAM_IDENTIFIER:
                raise _damaged("a stream in it begins wrongly")
        elif kind != _PADDING and kind not in _SKIPPABLE:
            raise _damaged(f"it has a frame of the unknown type {kind:02x}")


def _announced(kind: int, body: memoryview) -> int:
    if len(body) < _CHECKSUM_BYTES:
        raise _damaged("a frame is too short")
    length = len(body) - _CHECKSUM_BYTES if kind == _PLAIN else _varint(body[_CHECKSUM_BYTES:])
    if length > FRAME_BYTES:
        raise _damaged("a frame is too long")
    return length


def _varint(data: memoryview) -> int:
    value = 0
    for count, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value
    raise _damaged("a frame has no length")
