"""Codec of plain values as the bytes of one record: numbers, text, bytes, arrays, and lists, tuples and dicts of them.

Layout: the magic 93 52 56 01, u32 length of what follows, JSON (UTF-8) in which every value that JSON has no form for
is an object ``{"": [kind, ...]}``, then the bytes of all arrays and bytes objects, in their order. Kinds are ``bytes``
(length), ``array`` (type, shape), ``tuple`` (items) and ``dict`` (pairs, for one that has a key "" or a key that is not
text). Decoding cannot run code: pickles are neither written nor read.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtime.data.errors import RecordError
from runtime.data.recordio.header import HEADER_BYTES, LENGTH_BYTES, MAGIC_BYTES, NONE, Header
from runtime.messages import data as messages

MAGIC = b"\x93RV\x01"
_LENGTH = struct.Struct("<I")
_HEAD_BYTES = len(MAGIC) + _LENGTH.size
_MARK = ""
_KINDS_OF_ARRAYS = "biufcSU"


def recognise(head: bytes) -> bool:
    """Return whether a RecordIO file begins with such a record. A compressed file does not show it."""
    if not head.startswith(MAGIC_BYTES) or len(head) < HEADER_BYTES:
        return False
    if Header.unpack(head[:HEADER_BYTES]).compressor != NONE:
        return False
    return head[HEADER_BYTES + LENGTH_BYTES :].startswith(MAGIC)


def encode(value: Any) -> bytes:
    """Encode a value. Raises RecordError, with the type, for a value without such a form."""
    buffers: list[bytes] = []
    try:
        header = json.dumps(_described(value, buffers), ensure_ascii=False, separators=(",", ":")).encode()
    except (RecursionError, ValueError) as error:
        raise RecordError(messages.RECORD_NOT_ENCODABLE(error=error)) from None
    return b"".join([MAGIC, _LENGTH.pack(len(header)), header, *buffers])


def decode(data: bytes | memoryview) -> Any:
    """Decode a value. Arrays are read-only views of ``data``. Raises RecordError."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < _HEAD_BYTES:
        raise RecordError(messages.RECORD_NOT_VALUES())
    end = _HEAD_BYTES + _LENGTH.unpack_from(view, len(MAGIC))[0]
    try:
        header = json.loads(bytes(view[_HEAD_BYTES:end]))
        rest = _Rest(view[end:])
        value = _value(header, rest)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise RecordError(messages.RECORD_VALUES_DAMAGED(error=error)) from None
    if rest.data:
        raise RecordError("A record of values is damaged (it is too long). Restore the file from its source.")
    return value


class _Rest:
    """The bytes that are not used yet."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def take(self, length: int) -> memoryview:
        if not 0 <= length <= len(self.data):
            raise ValueError("it is too short")
        taken, self.data = self.data[:length], self.data[length:]
        return taken


def _described(value: Any, buffers: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kind, describe in _DESCRIBE.items():
        if isinstance(value, kind):
            return describe(value, buffers)
    raise RecordError(messages.RECORD_TYPE_UNSUPPORTED(kind=type(value).__name__))


def _describe_bytes(value: bytes | bytearray | memoryview, buffers: list[bytes]) -> Any:
    buffers.append(bytes(value))
    return {_MARK: ["bytes", len(buffers[-1])]}


def _describe_array(value: Any, buffers: list[bytes]) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in _KINDS_OF_ARRAYS:
        raise RecordError(messages.ARRAY_TYPE_UNSUPPORTED(kind=array.dtype))
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    buffers.append(little.tobytes())
    return {_MARK: ["array", little.dtype.str, list(array.shape)]}


def _describe_dict(value: Mapping[Any, Any], buffers: list[bytes]) -> Any:
    if all(isinstance(key, str) and key != _MARK for key in value):
        return {key: _described(item, buffers) for key, item in value.items()}
    return {_MARK: ["dict", [[_described(key, buffers), _described(item, buffers)] for key, item in value.items()]]}


def _describe_list(value: list[Any], buffers: list[bytes]) -> Any:
    return [_described(item, buffers) for item in value]


def _describe_tuple(value: tuple[Any, ...], buffers: list[bytes]) -> Any:
    return {_MARK: ["tuple", _describe_list(list(value), buffers)]}


_DESCRIBE: Mapping[Any, Callable[[Any, list[bytes]], Any]] = {
    (bytes, bytearray, memoryview): _describe_bytes,
    (np.ndarray, np.generic): _describe_array,
    dict: _describe_dict,
    list: _describe_list,
    tuple: _describe_tuple,
}


def _value(encoded: Any, rest: _Rest) -> Any:
    if isinstance(encoded, list):
        return [_value(item, rest) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if _MARK in encoded:
        kind, *about = encoded[_MARK]
        return _VALUE[kind](about, rest)
    return {key: _value(item, rest) for key, item in encoded.items()}


def _value_of_array(about: list[Any], rest: _Rest) -> Any:
    dtype, shape = np.dtype(str(about[0])), tuple(about[1])
    if dtype.kind not in _KINDS_OF_ARRAYS or not dtype.itemsize:
        raise ValueError("it has an array of no plain type")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("it has an array of no shape")
    data = rest.take(math.prod(shape) * dtype.itemsize)
    # Without items NumPy would not need the bytes; a shape could then announce any number of empty items.
    return np.frombuffer(data, dtype).reshape(shape) if len(data) else np.empty(shape, dtype)


_VALUE: Mapping[str, Callable[[list[Any], _Rest], Any]] = {
    "bytes": lambda about, rest: bytes(rest.take(about[0])),
    "array": _value_of_array,
    "tuple": lambda about, rest: tuple(_value(item, rest) for item in about[0]),
    "dict": lambda about, rest: {_value(key, rest): _value(item, rest) for key, item in about[0]},
}
