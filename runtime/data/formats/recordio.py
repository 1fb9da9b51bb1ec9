"""RecordIO as a format: its records as bytes, or decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from runtime.data import record_codec, value_codec
from runtime.data.errors import RecordError
from runtime.data.recordio import RecordIOError, chunks, files, index, reader
from runtime.data.recordio.header import HEADER_BYTES, MAGIC_BYTES, Header
from runtime.data.span import Span
from runtime.messages import data as messages

Decode = Callable[[memoryview], Any]


def recognise(head: bytes) -> bool:
    return head.startswith(MAGIC_BYTES)


def list_chunks(path: Path, chunk_bytes: int) -> Iterator[Span]:
    """Yield the chunks as they were written: ``chunk_bytes`` has no effect."""
    del chunk_bytes
    with files.Source(path) as source:
        yield from index.hop(source)


def read(path: Path, span: Span) -> Iterator[memoryview]:
    """Yield views of the chunk, without a copy. They keep it in memory."""
    with files.Source(path) as source:
        return iter(reader.read_span(source, span, partial(_views, span)))


def _views(span: Span, data: bytes) -> list[memoryview]:
    found = chunks.views(data)
    if span.digest not in (None, Header.unpack(data[:HEADER_BYTES]).crc) or len(found) != span.records:
        raise RecordIOError(messages.CHUNK_CHANGED_SINCE_INDEXED())
    return found


def _read_as(decode: Decode, path: Path, span: Span) -> Iterator[Any]:
    for number, record in enumerate(read(path, span)):
        try:
            yield decode(record)
        except RecordError as error:
            raise RecordError(
                messages.RECORD_PLACE(path=path, offset=span.offset, number=f"{number}: {error}")
            ) from error


def read_features(path: Path, span: Span) -> Iterator[record_codec.Record]:
    return record_codec.decode_all(list(read(path, span)))


read_bytes = partial(_read_as, bytes)
read_values = partial(_read_as, value_codec.decode)
