"""Pictures as arrays, if Pillow is installed.

Colours are uint8 (height, width, 3). Grey pictures with more than 8 bits keep their numbers: uint16, int32 or float32
(height, width). Pictures are rotated according to their EXIF orientation.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.data.errors import RecordError
from runtime.data.optional_imports import find
from runtime.messages import data as messages

_PNG, _TIFF = b"\x89PNG\r\n\x1a\n", (b"II*\0", b"MM\0*")
_FIRST_BYTES = (b"\xff\xd8\xff", _PNG, b"GIF87a", b"GIF89a", *_TIFF)
# Text may begin like this too. What a picture has a little later: two reserved numbers, or the kind of a RIFF file.
_LATER = ((b"BM", 6, bytes(4)), (b"RIFF", 8, b"WEBP"))
# Pillow's modes of grey pictures with more than 8 bits, and the types that keep their numbers.
_WIDE_GREY = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I;16N": "u2", "I": "i4", "F": "f4"}
_BITS_PER_SAMPLE = 258  # TIFF's tag
_BITS_OF_PNG = 24  # offset in a PNG file


def is_picture(content: bytes) -> bool:
    """Return whether the bytes begin as a picture does."""
    return content.startswith(_FIRST_BYTES) or any(
        content.startswith(first) and content.startswith(later, at) for first, at, later in _LATER
    )


def picture(content: bytes) -> Any:
    """Return the picture as an array, or the bytes if they are not a picture or Pillow is not installed.

    Raises RecordError for colours of more than 8 bits, which Pillow would cut, and what Pillow raises for a damaged
    picture.
    """
    pillow = find("PIL.Image") if is_picture(content) else None
    return content if pillow is None else _array(content, pillow.open(io.BytesIO(content)))


def _array(content: bytes, image: Any) -> NDArray[Any]:
    wide = _WIDE_GREY.get(image.mode)
    if wide is None and _bits(content, image) > 8:
        raise RecordError(messages.IMAGE_COLOUR_DEPTH_UNSUPPORTED())
    _turn(image)
    return np.asarray(image).astype(wide) if wide else np.asarray(image.convert("RGB"))


def _bits(content: bytes, image: Any) -> int:
    """Return the bits of a colour according to the file."""
    if content.startswith(_PNG):
        return content[_BITS_OF_PNG]
    if content.startswith(_TIFF):
        return int(max(image.tag_v2.get(_BITS_PER_SAMPLE, (8,))))
    return 8


def _turn(image: Any) -> None:
    operations = find("PIL.ImageOps")
    try:
        if operations is not None:
            operations.exif_transpose(image, in_place=True)
    except Exception:  # noqa: BLE001  Pillow raises many; damaged EXIF leaves the picture valid
        return
