"""Lines of text, JSON lines, and the division of a file at its lines, which other formats share.

The index reads the whole file once, a chunk at a time, because there is no other way to count lines. So every chunk has
a digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import IO, Any

from runtime.data.checksums import crc32
from runtime.data.errors import FormatError, RecordError
from runtime.data.formats.base import File, read_bytes
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages

_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors put before the first line

Count = Callable[[File, int, bytes], int]
Complete = Callable[[bytes], bool]


# --- Text ------------------------------------------------------------------------------------------------------------
def index_text(path: File, chunk_bytes: int) -> Iterator[Span]:
    return cut(path, chunk_bytes, lambda path, offset, data: len(_lines(path, offset, data)))


def read_text(path: File, span: Span) -> Iterator[str]:
    """Yield every line without its line break, empty ones too."""
    return iter(_lines(path, span.offset, read_bytes(path, span)))


def _lines(path: File, offset: int, data: bytes) -> list[str]:
    try:
        lines = without_mark(offset, data).decode().split("\n")
    except UnicodeDecodeError as error:
        raise not_utf8(path, offset, error) from None
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


# --- JSON lines ------------------------------------------------------------------------------------------------------
def index_json(path: File, chunk_bytes: int) -> Iterator[Span]:
    return cut(path, chunk_bytes, lambda _path, offset, data: len(filled(without_mark(offset, data))))


def read_json(path: File, span: Span) -> Iterator[Any]:
    """Yield the value of every line. Empty lines are skipped."""
    for number, line in enumerate(filled(without_mark(span.offset, read_bytes(path, span)))):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            where = messages.RECORD_PLACE(path=path, offset=span.offset, number=number)
            raise RecordError(messages.JSON_LINE_INVALID(where=where, error=error)) from None


def filled(data: bytes) -> list[bytes]:
    """Return the lines that are not blank."""
    return [line for line in data.split(b"\n") if line.strip()]


# --- Cutting ---------------------------------------------------------------------------------------------------------
def cut(path: File, chunk_bytes: int, count: Count, complete: Complete = lambda data: True) -> Iterator[Span]:
    """Yield chunks of whole lines that end where the data read so far is ``complete``.

    ``count`` returns the number of records in a chunk, by its path, offset and bytes. A chunk without records is not
    merged with another and is left out.
    """
    offset = 0
    with path.open("rb") as file:
        while data := _piece(path, file, offset, chunk_bytes, complete):
            if records := count(path, offset, data):
                yield Span(offset, len(data), records, crc32(data))
            offset += len(data)


def _piece(path: File, file: IO[bytes], offset: int, chunk_bytes: int, complete: Complete) -> bytes:
    parts = [file.read(chunk_bytes)]
    length = len(parts[0])
    ended = complete(parts[0]) and parts[0].endswith(b"\n")
    while not ended and (line := file.readline(MAX_CHUNK_BYTES)):
        parts.append(line)
        length += len(line)
        if length > MAX_CHUNK_BYTES:
            raise FormatError(
                messages.LINE_TOO_LONG(where=messages.OFFSET_PLACE(path=path, offset=offset), most=MAX_CHUNK_BYTES)
            )
        ended = complete(line) and line.endswith(b"\n")
    return b"".join(parts)


def without_mark(offset: int, data: bytes) -> bytes:
    return data if offset else data.removeprefix(_MARK)


def not_utf8(path: File, offset: int, error: UnicodeDecodeError) -> FormatError:
    return FormatError(messages.TEXT_NOT_UTF8(where=messages.CHUNK_PLACE(path=path, offset=offset), error=error.reason))
