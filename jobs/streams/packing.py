"""How entries of a stream are packed into the payload of a block. Pure.

A payload is one byte that names the format, then a body. The body starts with the length of a JSON header (u4) and the
header; the columns follow as little-endian arrays, one after another:

    metrics   times f8[n], steps f8[n], values f8[n], key u2[n]*, source u2[n]*
    logs      times f8[n], lengths u4[n] (characters), stream u1[n], source u2[n]*, then all texts joined, in UTF-8

The header holds ``n`` and the tables that the index columns point into: ``keys`` and ``sources`` (attempt number and
replica). A column with * is left out where its table has at most one entry. ``PLAIN`` bodies stand as they are,
``DEFLATED`` ones are compressed with zlib; NaN and the infinities keep their bits.
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

PLAIN, DEFLATED = 0, 1
# Blocks store the place in this list. ``system`` has the portal's own lines, ``agent`` those of the agent of a replica.
STREAMS = ("stdout", "stderr", "system", "agent")
MAX_TABLE = 1 << 16

_LENGTH = struct.Struct("<I")


class WriterId(NamedTuple):
    """Who wrote an entry: the number of the attempt, and the replica's name."""

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
        """From rows of (unix time, step, key, value), all of one replica."""
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
        """Without the first ``count`` points."""
        return self._cut(slice(count, None)) if count else self

    def first(self, count: int) -> Self:
        """The first ``count`` points alone."""
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
        """From rows of (unix time, stream, text), all of one replica."""
        times, streams, texts = zip(*rows, strict=True) if rows else ((), (), ())
        numbers = np.array([STREAMS.index(stream) for stream in streams], np.uint8)
        return cls(np.array(times, np.float64), numbers, list(texts), _zeros(len(texts)), (source,))

    def skip(self, count: int) -> Self:
        """Without the first ``count`` lines."""
        return type(self)(
            self.times[count:], self.stream[count:], self.texts[count:], self.source[count:], self.sources
        )


Packed = TypeVar("Packed", Points, Lines)


def pack_points(points: Points, *, deflate: bool = False) -> bytes:
    """The payload of a block of points."""
    header = {"n": len(points), "keys": points.keys, "sources": points.sources}
    columns = [points.times.astype("<f8"), points.steps.astype("<f8"), points.values.astype("<f8")]
    columns += [points.key.astype("<u2")] if len(points.keys) > 1 else []
    columns += [points.source.astype("<u2")] if len(points.sources) > 1 else []
    return _pack(header, [column.tobytes() for column in columns], deflate=deflate, level=1)


def unpack_points(payload: bytes) -> Points:
    """The points of a block. The columns are views of the payload: read only."""
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


def pack_lines(lines: Lines, *, level: int = 1) -> bytes:
    """The payload of a block of lines, compressed: quickly where it is taken in, harder (``level``) where it is
    sealed.
    """
    header = {"n": len(lines), "sources": lines.sources}
    lengths = np.array([len(text) for text in lines.texts], "<u4")
    parts = [lines.times.astype("<f8").tobytes(), lengths.tobytes(), lines.stream.tobytes()]
    parts += [lines.source.astype("<u2").tobytes()] if len(lines.sources) > 1 else []
    return _pack(header, [*parts, "".join(lines.texts).encode()], deflate=True, level=level)


def unpack_lines(payload: bytes) -> Lines:
    """The lines of a block."""
    body, header, offset = _unpack(payload)
    columns = _Columns(body, offset, header["n"])
    times, lengths, stream = columns.take("<f8"), columns.take("<u4"), columns.take("u1")
    source = columns.take("<u2") if len(header["sources"]) > 1 else _zeros(header["n"])
    return Lines(times, stream, list(_split(columns.rest().decode(), lengths)), source, _sources(header))


def merge_points(blocks: Sequence[Points]) -> Points:
    """The points of several blocks as one, in their order."""
    keys, key = _merge_tables([(block.keys, block.key) for block in blocks])
    sources, source = _merge_tables([(block.sources, block.source) for block in blocks])
    times, steps, values = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("times", "steps", "values")
    )
    return Points(times, steps, values, key, source, keys, sources)


def merge_lines(blocks: Sequence[Lines]) -> Lines:
    """The lines of several blocks as one, in their order."""
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


def _pack(header: dict[str, Any], parts: list[bytes], *, deflate: bool, level: int) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    # A multiple of eight: the arrays behind it then lie aligned, seen from the start of the body.
    text += b" " * (-(len(text) + _LENGTH.size) % 8)
    body = b"".join([_LENGTH.pack(len(text)), text, *parts])
    return bytes([DEFLATED]) + zlib.compress(body, level) if deflate else bytes([PLAIN]) + body


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
