"""Pictures as sources of ``<img>``: files that browsers display, and arrays drawn in grey or in colours. Pure.

Nothing is decompressed: only the header of a file is read, for its type and size in pixels. Data without the signature
of a picture, or larger than a browser should draw, is not a picture.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 512 * 1024  # of one file
MOST_SIDE = 4096  # pixels
# Limits of the sides of an array that is drawn; smaller ones are tables, larger ones have no preview.
_LEAST_DRAWN, _MOST_DRAWN = 8, 512
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xDA)})

Size = tuple[int, int]


class Picture(NamedTuple):
    """Picture for a page. ``source`` is a data: URL; width and height are in pixels."""

    source: str
    width: int
    height: int


def of_file(data: bytes | memoryview) -> Picture | None:
    """Return the picture in these bytes if browsers display it, else None."""
    if len(data) > MOST_BYTES:
        return None
    content = bytes(data)
    for kind, size_of in _KINDS.items():
        size = size_of(content)
        if size and all(0 < side <= MOST_SIDE for side in size):
            return Picture(_source(kind, content), *size)
    return None


def of_array(array: NDArray[Any]) -> Picture | None:
    """Draw an array. Return None if it is not a picture.

    The array has rows and columns, with 1, 3 or 4 colours in the first or last dimension; or it is a flat square of
    non-negative numbers, row by row. Values other than bytes are scaled from the smallest (black) to the largest
    (white).
    """
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    pixels = _pixels(array)
    if pixels is None or not all(_LEAST_DRAWN <= side <= _MOST_DRAWN for side in pixels.shape[:2]):
        return None
    height, width = pixels.shape[:2]
    return Picture(_source("image/png", _png(_levels(pixels))), width, height)


def _source(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


# --- Files -----------------------------------------------------------------------------------------------------------
def _png_size(data: bytes) -> Size | None:
    return struct.unpack_from(">II", data, 16) if data.startswith(_PNG) and len(data) >= 24 else None


def _gif_size(data: bytes) -> Size | None:
    return struct.unpack_from("<HH", data, 6) if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10 else None


def _jpeg_size(data: bytes) -> Size | None:
    """Read the size from the frame header, which follows the other segments."""
    at = 2
    while data.startswith(b"\xff\xd8") and at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 if marker in _JPEG_BARE else 1 if marker == 0xFF else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _webp_size(data: bytes) -> Size | None:
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_KINDS: dict[str, Callable[[bytes], Size | None]] = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
}


# --- Arrays ----------------------------------------------------------------------------------------------------------
def _pixels(array: NDArray[Any]) -> NDArray[Any] | None:
    """Return the array as (height, width) or (height, width, colours), or None if it is not a picture."""
    if array.ndim == 1:
        side = math.isqrt(array.size)
        return array.reshape(side, side) if side * side == array.size and array.min() >= 0 else None
    if array.ndim == 3:
        array = np.moveaxis(array, 0, -1) if array.shape[-1] not in (1, 3, 4) else array
        if array.shape[-1] not in (1, 3, 4):
            return None
        array = array[..., 0] if array.shape[-1] == 1 else array
    return array if array.ndim in (2, 3) else None


def _levels(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert to bytes. NaN and infinities become black."""
    if pixels.dtype == np.uint8:
        return pixels
    values = np.nan_to_num(pixels.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    # Halved, so that the difference of the largest numbers does not overflow.
    spread = (values / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.zeros_like(values)
    return np.round(spread * 255).astype(np.uint8)


def _png(levels: NDArray[np.uint8]) -> bytes:
    height, width = levels.shape[:2]
    colour = {2: 0, 3: 2 if levels.shape[-1] == 3 else 6}[levels.ndim]
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return _PNG + b"".join(_pieces(("IHDR", head), ("IDAT", zlib.compress(rows)), ("IEND", b"")))


def _pieces(*chunks: tuple[str, bytes]) -> Iterator[bytes]:
    for name, content in chunks:
        body = name.encode() + content
        yield struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
