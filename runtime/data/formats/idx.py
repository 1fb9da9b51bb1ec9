"""IDX, the format of MNIST. All values are big-endian.

A file is u16 zero, u8 type, u8 number of dimensions, each dimension as u32, then the values.

A record is a row. If a file of images (``train-images-idx3-ubyte``) has its labels beside it
(``train-labels-idx1-ubyte``), a record is the image and its label, and the labels have no records of their own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from runtime.data.errors import FormatError
from runtime.data.formats import gzipped
from runtime.data.formats.arrays import Array, Rows, checked, rows_of, spans_of
from runtime.data.formats.base import File, read_all, read_bytes
from runtime.data.span import Span
from runtime.messages import data as messages

_HEAD = struct.Struct(">HBB")
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 8
_IMAGES = re.compile(r"(.*)images([._-])idx[0-9](.*)")
_LABELS = r"\1labels\2idx{}\3"
_PACKED = ".gz"


def recognise(head: bytes) -> bool:
    if len(head) < _HEAD.size:
        return False
    zero, kind, dimensions = _HEAD.unpack_from(head)
    return zero == 0 and kind in _TYPES and 1 <= dimensions <= _MOST_DIMENSIONS


def index(path: File, chunk_bytes: int) -> Iterator[Span]:
    rows = _rows(path)
    _labels(path, rows)
    return spans_of(path, rows, chunk_bytes)


def read(path: File, span: Span) -> Iterator[Any]:
    rows = _rows(path)
    found = _native(rows_of(path, rows, span))
    labels = _labels(path, rows)
    if labels is None:
        return iter(found)
    file, described = labels
    first = (span.offset - rows.begin) // rows.row_bytes
    own = described.span(first, span.records)
    return zip(found, described.array(read_bytes(file, own), own.records).tolist(), strict=True)


def labels_of(path: str, names: Collection[str]) -> str:
    """Return the path of the labels for a file of images, or an empty text if there is none."""
    return next((name for name in _names_of_labels(path) if name in names), "")


def _names_of_labels(path: str) -> list[str]:
    """Return the possible names of the labels: packed or not, and numbers of any size (``idx2-int`` of QMNIST)."""
    folder, name = PurePosixPath(path).parent, PurePosixPath(path).name
    plain = name.removesuffix(_PACKED)
    if not _IMAGES.fullmatch(plain):
        return []
    names = [_IMAGES.sub(_LABELS.format(1), plain), _IMAGES.sub(_LABELS.format(1), plain.replace("ubyte", "int"))]
    return [str(folder / (each + end)) for each in names for end in ("", _PACKED)]


def _rows(path: File) -> Rows:
    with path.open("rb") as file:
        head = read_all(file.read, _HEAD.size)
        if not recognise(head):
            raise FormatError(messages.IDX_INVALID(path=path))
        _zero, kind, dimensions = _HEAD.unpack(head)
        sizes = read_all(file.read, 4 * dimensions)
        begin = file.tell()
    if len(sizes) < 4 * dimensions:
        raise FormatError(messages.ARRAY_TRUNCATED(where=path))
    number, *shape = struct.unpack(f">{dimensions}I", sizes)
    return checked(path, Rows(begin, number, tuple(shape), np.dtype(_TYPES[kind])), path.stat().st_size)


def _labels(path: File, images: Rows) -> tuple[File, Rows] | None:
    """Return the file of labels beside a file of images, and its content."""
    found = labels_of(path.name, {name for name in _names_of_labels(path.name) if (path.parent / name).is_file()})
    if not found:
        return None
    place = path.parent / found
    file: File = gzipped.Unpacked(place) if gzipped.is_packed(place) else place
    rows = _rows(file)
    if rows.number != images.number or rows.shape:
        raise FormatError(
            messages.IMAGE_LABEL_COUNT_MISMATCH(path=path, images=images.number, file=found, labels=rows.number)
        )
    return file, rows


def _native(rows: Array) -> Array:
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)
