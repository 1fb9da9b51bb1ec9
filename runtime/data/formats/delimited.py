"""CSV (RFC 4180), also with ``;``, TAB or ``|``: rows, whose quoted cells may contain line breaks.

Rows are dicts if the columns have names, else tuples; ``dialect`` decides that and the separator from the file's first
bytes. All values are text, because the file has no types. Chunks are cut where the number of quotes before is even, so
a file in which every quoted cell is closed is cut between rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from runtime.data.errors import FormatError, RecordError
from runtime.data.formats import dialect
from runtime.data.formats.base import File, read_bytes
from runtime.data.formats.dialect import Layout
from runtime.data.formats.lines import cut, not_utf8
from runtime.data.span import Span
from runtime.messages import data as messages

Row = dict[str, str] | tuple[str, ...]
_QUOTE = b'"'


def index(path: File, chunk_bytes: int) -> Iterator[Span]:
    layout = _layout(path)
    quotes = read = 0

    def complete(data: bytes) -> bool:
        nonlocal quotes, read
        quotes += data[max(0, layout.begin - read) :].count(_QUOTE)
        read += len(data)
        return quotes % 2 == 0

    def count(path: File, offset: int, data: bytes) -> int:
        if quotes % 2:
            raise FormatError(messages.CSV_QUOTE_UNCLOSED(where=messages.OFFSET_PLACE(path=path, offset=offset)))
        rows = _rows(path, offset, data, layout)
        for number, row in enumerate(rows):
            _check(path, offset, number, row, layout)
        return len(rows)

    return cut(path, chunk_bytes, count, complete)


def read(path: File, span: Span) -> Iterator[Row]:
    layout = _layout(path)
    rows = _rows(path, span.offset, read_bytes(path, span), layout)
    if len(rows) != span.records:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    for number, row in enumerate(rows):
        _check(path, span.offset, number, row, layout)
        for place in layout.decimals:
            if place < len(row):
                row[place] = dialect.with_point(row[place])
        yield dict(zip(layout.columns, row, strict=True)) if layout.columns else tuple(row)


def _layout(path: File) -> Layout:
    with path.open("rb") as file:
        return dialect.layout(file.read(dialect.HEAD_BYTES), path.suffix)


def _rows(path: File, offset: int, data: bytes, layout: Layout) -> list[list[str]]:
    """Return the records of a chunk: its rows without the header, and without the lines before it."""
    try:
        rows = dialect.rows_of(data[max(0, layout.begin - offset) :].decode(), layout.separator)
    except UnicodeDecodeError as error:
        raise not_utf8(path, offset, error) from None
    except csv.Error as error:
        raise FormatError(
            messages.CSV_INVALID(where=messages.CHUNK_PLACE(path=path, offset=offset), error=error)
        ) from None
    has_header = layout.header and offset <= layout.begin < offset + len(data)
    return rows[1:] if has_header else rows


def _check(path: File, offset: int, number: int, row: list[str], layout: Layout) -> None:
    if not layout.columns or len(row) == len(layout.columns):
        return
    where, due = messages.RECORD_PLACE(path=path, offset=offset, number=number), len(layout.columns)
    if not layout.rival:
        raise RecordError(messages.CSV_CELL_COUNT_MISMATCH(where=where, count=len(row), expected=due))
    raise RecordError(
        messages.CSV_CELL_COUNT_MISMATCH_SEPARATOR(
            where=where, count=len(row), expected=due, separator=f"{layout.rival!r}"
        )
    )
