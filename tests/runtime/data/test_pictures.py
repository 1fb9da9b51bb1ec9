"""Pictures as arrays: their numbers are kept, or the loss is an error."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from runtime.data import pictures
from runtime.data.errors import RecordError
from runtime.data.pictures import picture
from runtime.messages import data as messages
from tests.messages import pattern

DEPTHS = np.arange(12).reshape(3, 4) * 5000
ORIENTATION = 0x0112


def file_of(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(bits: int, kind: int, pixels: bytes) -> bytes:
    """Return one row of a picture of any kind, which Pillow does not write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", 2, 1, bits, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" + pixels))
        + chunk(b"IEND", b"")
    )


@pytest.mark.formats
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK"])
def test_pictures_have_three_colours_of_eight_bits(mode: str) -> None:
    from PIL import Image

    made = picture(file_of(Image.new(mode, (3, 2)), "TIFF"))
    assert (made.shape, made.dtype) == ((2, 3, 3), np.uint8)


@pytest.mark.formats
@pytest.mark.parametrize(
    ("dtype", "kind"), [("uint16", "PNG"), ("uint16", "TIFF"), ("int32", "TIFF"), ("float32", "TIFF")]
)
def test_grey_pictures_with_more_bits_keep_their_numbers(dtype: str, kind: str) -> None:
    from PIL import Image

    made = picture(file_of(Image.fromarray(DEPTHS.astype(dtype)), kind))
    assert made.dtype == np.dtype(dtype)
    assert made.tolist() == DEPTHS.tolist()


@pytest.mark.formats
def test_big_endian_pictures_come_in_the_order_of_this_machine() -> None:
    from PIL import Image

    made = picture(file_of(Image.frombytes("I;16B", (4, 3), DEPTHS.astype(">u2").tobytes()), "TIFF"))
    assert (made.dtype.str, made.tolist()) == ("<u2", DEPTHS.tolist())


@pytest.mark.formats
@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colours_of_sixteen_bits_are_refused_rather_than_cut(kind: int, channels: int) -> None:
    with pytest.raises(RecordError, match=pattern(messages.IMAGE_COLOUR_DEPTH_UNSUPPORTED)):
        picture(png(16, kind, bytes(4 * channels)))


@pytest.mark.formats
@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (1, 2)), (6, (0, 1)), (8, (2, 0))])
def test_a_picture_is_turned_as_its_camera_was(orientation: int, corner: tuple[int, int]) -> None:
    from PIL import Image

    image = Image.new("RGB", (3, 2))
    image.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    made = picture(file_of(image, "PNG", exif=exif))
    assert made[corner].tolist() == [255, 255, 255]


@pytest.mark.formats
def test_damaged_exif_leaves_the_picture_as_it_is() -> None:
    from PIL import Image

    made = picture(file_of(Image.new("RGB", (3, 2), "white"), "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff"))
    assert made.shape == (2, 3, 3)


def test_pictures_stay_bytes_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find", lambda name: None)
    assert picture(b"\x89PNG\r\n\x1a\n...") == b"\x89PNG\r\n\x1a\n..."


def test_bytes_that_are_not_a_picture_stay_bytes() -> None:
    assert picture(b"sound") == b"sound"
