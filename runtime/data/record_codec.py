"""Codec of one record: float32 features of any shape and a label, as bytes.

Layout, little-endian: u8 version (1), u8 kind of label (0 integer, 1 real number), u16 number of dimensions, u32 each
dimension, the features row by row as float32, the label as int64 or float64. Decoding cannot run code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from runtime.data.errors import RecordError
from runtime.messages import data as messages

Features = npt.NDArray[np.float32]
Label = int | float
Record = tuple[Features, Label]

_VERSION = 1
_HEAD = struct.Struct("<BBH")
_FLOAT = np.dtype("<f4")
_LABELS = {0: struct.Struct("<q"), 1: struct.Struct("<d")}
# Fewer records are unpacked one by one.
_WORTH_RECORDS = 4
_LABEL_DTYPES: dict[type, type[np.generic]] = {int: np.int64, float: np.float32}


def encode(features: npt.ArrayLike, label: Label) -> bytes:
    """Encode one record. Features are converted to float32."""
    array = np.ascontiguousarray(features, _FLOAT)
    kind = 0 if isinstance(label, int | np.integer) else 1
    shape = struct.pack(f"<{array.ndim}I", *array.shape)
    return _HEAD.pack(_VERSION, kind, array.ndim) + shape + array.tobytes() + _LABELS[kind].pack(label)


def decode(data: bytes | memoryview) -> Record:
    """Decode one record. The features are a read-only view of ``data``. Raises RecordError."""
    if len(data) < _HEAD.size:
        raise RecordError(messages.RECORD_TOO_SHORT(least=_HEAD.size, count=len(data)))
    version, kind, dimensions = _HEAD.unpack_from(data)
    if version != _VERSION or kind not in _LABELS:
        raise RecordError(messages.RECORD_NOT_FEATURES_AND_LABEL(version=version, kind=kind))
    begin = _HEAD.size + 4 * dimensions
    if len(data) < begin:
        raise RecordError(messages.RECORD_SHAPE_TRUNCATED())
    shape = struct.unpack_from(f"<{dimensions}I", data, _HEAD.size)
    count = math.prod(shape)
    end = begin + _FLOAT.itemsize * count
    if len(data) != end + _LABELS[kind].size:
        raise RecordError(
            messages.RECORD_SIZE_MISMATCH(shape=shape, expected=end + _LABELS[kind].size, count=len(data))
        )
    features = np.frombuffer(data, _FLOAT, count, begin).reshape(shape)
    return features, _LABELS[kind].unpack_from(data, end)[0]


def decode_all(packed: Sequence[bytes | memoryview]) -> Iterator[Record]:
    """Decode many records, with the results of ``decode`` on each.

    Records of one shape and kind are decoded together.
    """
    return _alike(packed) or map(decode, packed)


def _alike(packed: Sequence[bytes | memoryview]) -> Iterator[Record] | None:
    """Decode records that differ only in their numbers. Returns None if any other part of them differs."""
    if len(packed) < _WORTH_RECORDS or len(set(map(len, packed))) > 1:
        return None
    try:
        first, _label = decode(packed[0])
    except RecordError:
        return None
    begin = _HEAD.size + 4 * first.ndim
    if not first.ndim or not first.size or any(data[:begin] != packed[0][:begin] for data in packed):
        return None
    joined, stride, end = b"".join(packed), len(packed[0]), begin + first.nbytes
    strides = (stride, *first.strides)
    features = np.ndarray((len(packed), *first.shape), _FLOAT, joined, begin, strides)
    labels = np.ndarray((len(packed),), _LABELS[packed[0][1]].format, joined, end, (stride,))
    return zip(features, labels.tolist(), strict=True)


def stack(records: Iterable[Record]) -> tuple[Features, npt.NDArray[np.generic]]:
    """Return records of one shape as arrays (n, *shape) float32 and (n,) int64 or float32.

    Raises RecordError without records.
    """
    rows = list(records)
    if not rows:
        raise RecordError(messages.NO_RECORDS_TO_STACK())
    features = np.stack([row for row, _label in rows])
    return features, np.array([label for _row, label in rows], _LABEL_DTYPES[type(rows[0][1])])
