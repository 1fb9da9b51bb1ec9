"""``tf.train.Example``, the usual record of TFRecord files, without TensorFlow: a dict of features by name.

One value is a plain number or bytes; several are an array of float32 or int64, or a list of bytes; none is an empty
array or list. The message is ``Example{Features{map<string, Feature>}}`` with a Feature of bytes, floats or integers.
Unknown fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from runtime.data.errors import RecordError
from runtime.data.formats import tfrecord
from runtime.data.formats.base import File
from runtime.data.span import Span
from runtime.messages import data as messages

# Kinds of fields on the wire, and the numbers of the fields that are read.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SIZES = {_EIGHT: 8, _FOUR: 4}
_FEATURES, _ENTRY, _KEY, _VALUE, _ITEM = 1, 1, 1, 2, 1
_BYTES_LIST, _FLOAT_LIST, _INT_LIST = 1, 2, 3


def read(path: File, span: Span) -> Iterator[dict[str, Any]]:
    for number, record in enumerate(tfrecord.read(path, span)):
        try:
            yield decode(record)
        except RecordError as error:
            raise RecordError(
                messages.RECORD_PLACE(path=path, offset=span.offset, number=f"{number}: {error}")
            ) from None


def decode(record: bytes | memoryview) -> dict[str, Any]:
    """Return the features of one serialised Example. Raises RecordError for other bytes."""
    try:
        return {
            name: feature
            for features in _messages(memoryview(record), _FEATURES)
            for name, feature in map(_entry, _messages(features, _ENTRY))
        }
    except (ValueError, IndexError, struct.error) as error:
        raise RecordError(messages.TF_EXAMPLE_INVALID(error=error)) from None


def _entry(data: memoryview) -> tuple[str, Any]:
    name, feature = "", memoryview(b"")
    for number, kind, value in _fields(data):
        if kind == _BYTES and number == _KEY:
            name = bytes(value).decode()
        elif kind == _BYTES and number == _VALUE:
            feature = value
    return name, _feature(feature)


def _feature(data: memoryview) -> Any:
    """Return the values of a feature, or None if it has no kind."""
    values = None
    for number, kind, content in _fields(data):
        if kind == _BYTES and number in _LISTS:
            values = _LISTS[number](content)
    if values is None or len(values) != 1:
        return values
    return values.tolist()[0] if isinstance(values, np.ndarray) else values[0]


def _bytes_of(data: memoryview) -> list[bytes]:
    return [bytes(item) for item in _messages(data, _ITEM)]


def _floats_of(data: memoryview) -> Any:
    parts = [value for number, kind, value in _fields(data) if number == _ITEM and kind in (_BYTES, _FOUR)]
    return np.frombuffer(b"".join(parts), "<f4")


def _integers_of(data: memoryview) -> Any:
    found: list[int] = []
    for number, kind, value in _fields(data):
        if number == _ITEM and kind == _VARINT:
            found.append(value)
        elif number == _ITEM and kind == _BYTES:
            at = 0
            while at < len(value):
                item, at = _varint(value, at)
                found.append(item)
    return np.array(found, np.uint64).view(np.int64)


_LISTS: Mapping[int, Callable[[memoryview], Any]] = {
    _BYTES_LIST: _bytes_of,
    _FLOAT_LIST: _floats_of,
    _INT_LIST: _integers_of,
}


# --- Protocol buffers ------------------------------------------------------------------------------------------------
def _messages(data: memoryview, field_number: int) -> Iterator[memoryview]:
    return (value for number, kind, value in _fields(data) if number == field_number and kind == _BYTES)


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield number, kind and value of each field. Raises ValueError and IndexError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        size = _SIZES.get(kind)
        if kind == _BYTES:
            size, at = _varint(data, at)
        if size is None or not number or at + size > len(data):
            raise ValueError(f"a field of kind {kind} does not fit")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ValueError("a number is too long")
