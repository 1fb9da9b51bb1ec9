"""Frames of the control channel: a 4-byte big-endian payload length, a 1-byte kind, and the payload. Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from runtime.errors import WireError

# Bytes of a payload. A frame that announces more is refused before any of its payload is read.
PAYLOAD_LIMIT = 2**20

_HEADER = struct.Struct(">IB")
HEADER_BYTES = _HEADER.size


class FrameError(WireError):
    """The peer has sent what is no frame. The connection has to be closed."""


class Kind(IntEnum):
    JSON = 0  # one JSON object in UTF-8
    BYTES = 1


_KINDS = frozenset(map(int, Kind))


@dataclass(frozen=True)
class Frame:
    kind: Kind
    payload: bytes

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the frame. Raises FrameError for anything else."""
        if self.kind is not Kind.JSON:
            raise FrameError("a JSON frame was expected, and a frame of bytes came")
        try:
            document = json.loads(self.payload)
        except (ValueError, RecursionError):
            raise FrameError("the payload of a JSON frame is not JSON") from None
        if not isinstance(document, dict):
            raise FrameError("the payload of a JSON frame is not an object")
        return document


def encode(frame: Frame) -> bytes:
    """Return the frame's bytes. Raises FrameError for a payload above ``PAYLOAD_LIMIT``."""
    if len(frame.payload) > PAYLOAD_LIMIT:
        raise FrameError(f"a payload has at most {PAYLOAD_LIMIT:,} bytes, and this one has {len(frame.payload):,}")
    return _HEADER.pack(len(frame.payload), frame.kind) + frame.payload


def of_document(document: Mapping[str, Any]) -> Frame:
    """Return the frame of a JSON object."""
    return Frame(Kind.JSON, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


class Decoder:
    """Splits a stream of bytes into frames. ``limit``: the longest payload; it may be raised between frames."""

    def __init__(self, limit: int = PAYLOAD_LIMIT) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None. Raises FrameError; the decoder is of no use afterwards."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        length, number = _HEADER.unpack_from(self._buffer)
        if length > self.limit:
            raise FrameError(f"a frame announces {length:,} bytes; at most {self.limit:,} are allowed")
        if number not in _KINDS:
            raise FrameError(f"{number} is no kind of frame")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return Frame(Kind(number), payload)
