"""Codec for the payload of a block of stream entries. Pure.

A payload is one byte with the format, then a body. The body starts with the length of a JSON header (u4) and the
header; the columns follow as little-endian arrays, one after another:

    metrics   times f8[n], steps f8[n], values f8[n], key u2[n]*, source u2[n]*
    logs      times f8[n], lengths u4[n] (characters), stream u1[n], source u2[n]*, then all texts joined, in UTF-8

The header holds ``n`` and the tables that the index columns point into: ``keys`` and ``sources`` (attempt number and
replica). A column with * is omitted if its table has at most one entry. ``PLAIN`` bodies are uncompressed,
``DEFLATED`` ones are compressed with zlib; NaN and the infinities keep their bits.

``SEALED`` payloads are smaller, and slower to write: the header and each column are parts, each compressed separately
after its length (u4):

    metrics   header, key*, source*, times, steps, values
    logs      header, source*, stream, lengths, times, texts without digits, digits

Numbers of more than two bytes are stored as byte planes: all first bytes, then all second bytes, and so on. Times,
steps and values are in the order of their source and key; times and steps are differences of their bits (modulo
2 ** 64). In the texts each digit is replaced by a zero, and the digits follow separately: lines that a program prints
repeatedly differ in their numbers.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.uint16]

PLAIN, DEFLATED, SEALED = 0, 1, 2
# Blocks store the index in this list. ``system`` has the portal's own lines, ``agent`` those of a replica's agent.
STREAMS = ("stdout", "stderr", "system", "agent")
MAX_TABLE = 1 << 16

_LENGTH = struct.Struct("<I")
_ZERO = ord("0")
# Levels of zlib: for appended batches, and for sealed blocks.
_QUICK, _HARD = 1, 6


class WriterId(NamedTuple):
    """Writer of an entry: the number of the attempt, and the replica's name."""

    attempt: int
    replica: str


@dataclass(frozen=True)
class Points:
    """Metric points as columns of equal length. ``key`` and ``source`` index into ``keys`` and ``sources``."""

    times: Floats
    steps: Floats
    values: Floats
    key: Indexes
    source: Indexes
    keys: tuple[str, ...]
    sources: tuple[WriterId, ...]

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[float, float, str, float]], source: WriterId) -> Self:
        """Build points from rows of (unix time, step, key, value), all of one replica."""
        times, steps, keys, values = zip(*rows, strict=True) if rows else ((), (), (), ())
        table = {name: index for index, name in enumerate(dict.fromkeys(keys))}
        return cls(
            np.array(times, np.float64),
            np.array(steps, np.float64),
            np.array(values, np.float64),
            np.array([table[name] for name in keys], np.uint16) if len(table) > 1 else _zeros(len(keys)),
            _zeros(len(keys)),
            tuple(table),
            (source,),
        )

    def skip(self, count: int) -> Self:
        """Return the points without the first ``count``."""
        return self._cut(slice(count, None)) if count else self

    def first(self, count: int) -> Self:
        """Return the first ``count`` points."""
        return self._cut(slice(0, max(0, count))) if count < len(self) else self

    def _cut(self, piece: slice) -> Self:
        return type(self)(
            self.times[piece],
            self.steps[piece],
            self.values[piece],
            self.key[piece],
            self.source[piece],
            self.keys,
            self.sources,
        )


@dataclass(frozen=True)
class Lines:
    """Log lines as columns of equal length. ``stream`` indexes into ``STREAMS``, ``source`` into ``sources``."""

    times: Floats
    stream: npt.NDArray[np.uint8]
    texts: list[str]
    source: Indexes
    sources: tuple[WriterId, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[float, str, str]], source: WriterId) -> Self:
        """Build lines from rows of (unix time, stream, text), all of one replica."""
        times, streams, texts = zip(*rows, strict=True) if rows else ((), (), ())
        numbers = np.array([STREAMS.index(stream) for stream in streams], np.uint8)
        return cls(np.array(times, np.float64), numbers, list(texts), _zeros(len(texts)), (source,))

    def skip(self, count: int) -> Self:
        """Return the lines without the first ``count``."""
        return type(self)(
            self.times[count:], self.stream[count:], self.texts[count:], self.source[count:], self.sources
        )


Packed = TypeVar("Packed", Points, Lines)


def pack_points(points: Points) -> bytes:
    """Return the payload of an appended block of points."""
    header = {"n": len(points), "keys": points.keys, "sources": points.sources}
    columns = [points.times.astype("<f8"), points.steps.astype("<f8"), points.values.astype("<f8")]
    columns += [points.key.astype("<u2")] if len(points.keys) > 1 else []
    columns += [points.source.astype("<u2")] if len(points.sources) > 1 else []
    return _pack(header, [column.tobytes() for column in columns], deflate=False)


def seal_points(points: Points) -> bytes:
    """Return the payload of a sealed block of points."""
    header = {"n": len(points), "keys": points.keys, "sources": points.sources}
    order = _by_writer(points.source, points.key)
    parts = [points.key.astype("<u2").tobytes()] if len(points.keys) > 1 else []
    parts += [points.source.astype("<u2").tobytes()] if len(points.sources) > 1 else []
    parts += [_planes(_differences(points.times[order])), _planes(_differences(points.steps[order]))]
    return _seal(header, [*parts, _planes(points.values[order].astype("<f8"))])


def unpack_points(payload: bytes) -> Points:
    """Return the points of a block. The columns are read-only. Raises ValueError for an unknown format."""
    if payload[0] == SEALED:
        return _sealed_points(_Parts(payload))
    body, header, offset = _unpack(payload)
    columns = _Columns(body, offset, header["n"])
    return Points(
        times=columns.take("<f8"),
        steps=columns.take("<f8"),
        values=columns.take("<f8"),
        key=columns.take("<u2") if len(header["keys"]) > 1 else _zeros(header["n"]),
        source=columns.take("<u2") if len(header["sources"]) > 1 else _zeros(header["n"]),
        keys=tuple(header["keys"]),
        sources=_sources(header),
    )


def _sealed_points(parts: _Parts) -> Points:
    header = parts.header
    key = parts.column("<u2") if len(header["keys"]) > 1 else _zeros(header["n"])
    source = parts.column("<u2") if len(header["sources"]) > 1 else _zeros(header["n"])
    order = _by_writer(source, key)
    times, steps = _sums(parts.planes("<u8")), _sums(parts.planes("<u8"))
    times, steps, values = (_restored(column, order) for column in (times, steps, parts.planes("<f8")))
    return Points(times, steps, values, key, source, tuple(header["keys"]), _sources(header))


def pack_lines(lines: Lines) -> bytes:
    """Return the payload of an appended block of lines, compressed at a fast level."""
    header = {"n": len(lines), "sources": lines.sources}
    lengths = np.array([len(text) for text in lines.texts], "<u4")
    parts = [lines.times.astype("<f8").tobytes(), lengths.tobytes(), lines.stream.tobytes()]
    parts += [lines.source.astype("<u2").tobytes()] if len(lines.sources) > 1 else []
    return _pack(header, [*parts, "".join(lines.texts).encode()], deflate=True)


def seal_lines(lines: Lines) -> bytes:
    """Return the payload of a sealed block of lines."""
    header = {"n": len(lines), "sources": lines.sources}
    lengths = np.array([len(text) for text in lines.texts], "<u4")
    text = np.frombuffer("".join(lines.texts).encode(), np.uint8)
    is_digit = (text >= _ZERO) & (text <= _ZERO + 9)
    parts = [lines.source.astype("<u2").tobytes()] if len(lines.sources) > 1 else []
    parts += [lines.stream.tobytes(), _planes(lengths), _planes(_differences(lines.times[_by_writer(lines.source)]))]
    return _seal(header, [*parts, np.where(is_digit, np.uint8(_ZERO), text).tobytes(), text[is_digit].tobytes()])


def unpack_lines(payload: bytes) -> Lines:
    """Return the lines of a block. Raises ValueError for an unknown format."""
    if payload[0] == SEALED:
        return _sealed_lines(_Parts(payload))
    body, header, offset = _unpack(payload)
    columns = _Columns(body, offset, header["n"])
    times, lengths, stream = columns.take("<f8"), columns.take("<u4"), columns.take("u1")
    source = columns.take("<u2") if len(header["sources"]) > 1 else _zeros(header["n"])
    return Lines(times, stream, list(_split(columns.rest().decode(), lengths)), source, _sources(header))


def _sealed_lines(parts: _Parts) -> Lines:
    header = parts.header
    source = parts.column("<u2") if len(header["sources"]) > 1 else _zeros(header["n"])
    stream, lengths = parts.column("u1"), parts.planes("<u4")
    times = _restored(_sums(parts.planes("<u8")), _by_writer(source))
    text = parts.column("u1").copy()
    text[text == _ZERO] = parts.column("u1")
    return Lines(times, stream, list(_split(text.tobytes().decode(), lengths)), source, _sources(header))


def merge_points(blocks: Sequence[Points]) -> Points:
    """Return the points of several blocks as one, in their order."""
    keys, key = _merge_tables([(block.keys, block.key) for block in blocks])
    sources, source = _merge_tables([(block.sources, block.source) for block in blocks])
    times, steps, values = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("times", "steps", "values")
    )
    return Points(times, steps, values, key, source, keys, sources)


def merge_lines(blocks: Sequence[Lines]) -> Lines:
    """Return the lines of several blocks as one, in their order."""
    sources, source = _merge_tables([(block.sources, block.source) for block in blocks])
    return Lines(
        np.concatenate([block.times for block in blocks]),
        np.concatenate([block.stream for block in blocks]),
        [text for block in blocks for text in block.texts],
        source,
        sources,
    )


Name = TypeVar("Name")


def _merge_tables(parts: Sequence[tuple[tuple[Name, ...], Indexes]]) -> tuple[tuple[Name, ...], Indexes]:
    table: dict[Name, int] = {}
    columns = []
    for names, column in parts:
        places = np.array([table.setdefault(name, len(table)) for name in names] or [0], np.uint16)
        columns.append(places[column])
    return tuple(table), np.concatenate(columns)


class _Columns:
    """Reads arrays of ``count`` elements one after another."""

    def __init__(self, body: bytes, offset: int, count: int) -> None:
        self._body, self._offset, self._count = body, offset, count

    def take(self, kind: str) -> npt.NDArray[Any]:
        column = np.frombuffer(self._body, kind, self._count, self._offset)
        self._offset += column.nbytes
        return column

    def rest(self) -> bytes:
        return self._body[self._offset :]


class _Parts:
    """Reads the parts of a sealed payload one after another."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._offset = memoryview(payload), 1
        self.header: dict[str, Any] = json.loads(self._next())

    def column(self, kind: str) -> npt.NDArray[Any]:
        return np.frombuffer(self._next(), kind)

    def planes(self, kind: str) -> npt.NDArray[Any]:
        """Return a column that is stored as byte planes."""
        planes = np.frombuffer(self._next(), np.uint8).reshape(np.dtype(kind).itemsize, self.header["n"])
        return np.ascontiguousarray(planes.T).view(kind).reshape(self.header["n"])

    def _next(self) -> bytes:
        (length,) = _LENGTH.unpack_from(self._payload, self._offset)
        start = self._offset + _LENGTH.size
        self._offset = start + length
        return zlib.decompress(self._payload[start : self._offset])


def _by_writer(source: Indexes, *further: Indexes) -> npt.NDArray[np.intp]:
    """Return the indices that sort all entries by source, then by ``further``. The sort is stable."""
    return np.lexsort((*further, source))


def _restored(column: npt.NDArray[Any], order: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Return the column with the sort by ``order`` undone."""
    found = np.empty(len(order), np.float64)
    found[order] = column
    return found


def _differences(column: Floats) -> npt.NDArray[np.uint64]:
    """Return the differences of the bits of successive numbers, modulo 2 ** 64."""
    bits = column.astype("<f8").view("<u8")
    return np.diff(bits, prepend=bits.dtype.type(0))


def _sums(differences: npt.NDArray[np.uint64]) -> Floats:
    """Return the numbers whose ``_differences`` these are."""
    return np.cumsum(differences, dtype="<u8").view("<f8")


def _planes(column: npt.NDArray[Any]) -> bytes:
    """Return the byte planes of a column: all first bytes, then all second bytes, and so on."""
    return np.ascontiguousarray(column.view(np.uint8).reshape(len(column), column.itemsize).T).tobytes()


def _seal(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    pieces = [_smallest(part) for part in (json.dumps(header, separators=(",", ":")).encode(), *parts)]
    return b"".join([bytes([SEALED]), *(_LENGTH.pack(len(piece)) + piece for piece in pieces)])


def _smallest(part: bytes) -> bytes:
    """Return the shorter of full zlib compression and Huffman coding alone, which is better for random digits."""
    coder = zlib.compressobj(_HARD, strategy=zlib.Z_HUFFMAN_ONLY)
    return min(zlib.compress(part, _HARD), coder.compress(part) + coder.flush(), key=len)


def _pack(header: dict[str, Any], parts: list[bytes], *, deflate: bool) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    # Padded to a multiple of eight, so that the arrays after it are aligned relative to the start of the body.
    text += b" " * (-(len(text) + _LENGTH.size) % 8)
    body = b"".join([_LENGTH.pack(len(text)), text, *parts])
    return bytes([DEFLATED]) + zlib.compress(body, _QUICK) if deflate else bytes([PLAIN]) + body


def _unpack(payload: bytes) -> tuple[bytes, dict[str, Any], int]:
    body = bytes(memoryview(payload)[1:])
    if payload[0] == DEFLATED:
        body = zlib.decompress(body)
    elif payload[0] != PLAIN:
        raise ValueError(f"A block has the unknown format {payload[0]}; it was written by a later release.")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    return body, json.loads(body[_LENGTH.size : start]), start


def _split(text: str, lengths: npt.NDArray[np.uint32]) -> Iterator[str]:
    start = 0
    for end in np.cumsum(lengths, dtype=np.int64).tolist():
        yield text[start:end]
        start = end


def _sources(header: dict[str, Any]) -> tuple[WriterId, ...]:
    return tuple(WriterId(attempt, replica) for attempt, replica in header["sources"])


def _zeros(count: int) -> Indexes:
    return np.zeros(count, np.uint16)
