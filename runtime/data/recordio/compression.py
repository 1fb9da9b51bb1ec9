"""Compressors of a chunk's payload, by the number in its header."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from runtime.data.recordio import snappy
from runtime.data.recordio.header import COMPRESSORS, GZIP, NONE, SNAPPY, RecordIOError
from runtime.messages import data as messages

Stored = bytes | memoryview
Payload = bytes | bytearray | memoryview

# More than any writer produces. A damaged or hostile file must not fill the memory.
MAX_PAYLOAD_BYTES = 512 << 20
_GZIP_WINDOW = 31


def compress(compressor: int, payload: bytes) -> bytes:
    """Compress the payload. The same payload produces the same bytes."""
    return _COMPRESS[compressor](payload)


def decompress(compressor: int, stored: Stored) -> Payload:
    """Return the payload; without a compressor, ``stored`` itself.

    Raises RecordIOError for damaged data, for more than MAX_PAYLOAD_BYTES, and for an unknown compressor.
    """
    if compressor not in _DECOMPRESS:
        raise unknown(compressor)
    return _DECOMPRESS[compressor](stored)


def unknown(compressor: int) -> RecordIOError:
    known = ", ".join(f"{number} ({name})" for name, number in COMPRESSORS.items())
    return RecordIOError(messages.COMPRESSOR_UNKNOWN(number=compressor, known=known))


def _gzip(payload: bytes) -> bytes:
    # Not gzip.compress: without the time of writing, the same records produce the same bytes.
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(payload) + packer.flush()


def _gunzip(stored: Stored) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        payload = unpacker.decompress(stored, MAX_PAYLOAD_BYTES)
    except zlib.error as error:
        raise RecordIOError(messages.CHUNK_GZIP_DAMAGED(error=error)) from error
    if unpacker.unconsumed_tail:
        raise RecordIOError(messages.CHUNK_UNPACKS_TOO_LARGE(most=MAX_PAYLOAD_BYTES))
    if not unpacker.eof or unpacker.unused_data:
        raise RecordIOError(messages.CHUNK_GZIP_END_MISMATCH())
    return payload


def _plain(payload: bytes) -> bytes:
    return payload


_COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {NONE: _plain, SNAPPY: snappy.compress, GZIP: _gzip}
_DECOMPRESS: Mapping[int, Callable[[Stored], Payload]] = {
    NONE: lambda stored: stored,
    SNAPPY: lambda stored: snappy.decompress(stored, MAX_PAYLOAD_BYTES),
    GZIP: _gunzip,
}
