"""CSV (RFC 4180) and its sister with tabs: rows, whose quoted cells may hold line ends.

The first row names the columns if no cell of it is empty or a number and no two are the same; rows are then dicts, else
tuples. All values are text, as the file has no types. Chunks are cut where the quotes before are even in number, so a
file of which every quoted cell is closed is cut between rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from runtime.data.errors import FormatError, RecordError
from runtime.data.formats.base import read_bytes
from runtime.data.formats.lines import cut, not_utf8, without_mark
from runtime.data.formats.span import MAX_CHUNK_BYTES, Span

Row = dict[str, str] | tuple[str, ...]
# The first row is looked for in so many bytes.
_HEAD_BYTES = 1 << 20
_MOST_IN_A_CELL = 64 << 20
_QUOTE = b'"'


def index(path: Path, chunk_bytes: int) -> Iterator[Span]:
    columns = _columns(path)
    quotes = 0

    def complete(data: bytes) -> bool:
        nonlocal quotes
        quotes += data.count(_QUOTE)
        return quotes % 2 == 0

    def count(path: Path, offset: int, data: bytes) -> int:
        if quotes % 2:
            raise FormatError(f"{path}, offset {offset}: a quote is opened here or later and never closed.")
        return len(_rows(path, offset, data)) - (bool(columns) and offset == 0)

    return cut(path, chunk_bytes, count, complete)


def read(path: Path, span: Span) -> Iterator[Row]:
    columns = _columns(path)
    rows = _rows(path, span.offset, without_mark(span.offset, read_bytes(path, span)))
    if columns and span.offset == 0:
        del rows[:1]
    for number, row in enumerate(rows):
        if not columns:
            yield tuple(row)
        elif len(row) != len(columns):
            where = f"{path}, chunk at {span.offset}, record {number}"
            raise RecordError(f"{where}: the row has {len(row)} cells where the first row names {len(columns)}.")
        else:
            yield dict(zip(columns, row, strict=True))


def _columns(path: Path) -> tuple[str, ...]:
    """The names in the first row, if these are names."""
    with path.open("rb") as file:
        head = without_mark(0, file.read(_HEAD_BYTES))
    # What is cut off at the end is none of the first row's, unless that is longer than any sensible one.
    text = head.decode(errors="replace")
    try:
        first = next((row for row in _reader(path, text) if row), [])
    except csv.Error:
        return ()
    named = all(cell.strip() and not _is_number(cell) for cell in first) and len(set(first)) == len(first)
    return tuple(first) if named else ()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(path: Path, offset: int, data: bytes) -> list[list[str]]:
    """The rows that have cells."""
    # The limit is one of the whole process: whoever else reads CSV in it finds it as it was.
    before = csv.field_size_limit(min(_MOST_IN_A_CELL, MAX_CHUNK_BYTES))
    try:
        return [row for row in _reader(path, data.decode()) if row]
    except UnicodeDecodeError as error:
        raise not_utf8(path, offset, error) from None
    except csv.Error as error:
        raise FormatError(
            f"{path}, chunk at {offset}: this is no CSV ({error}). Correct the row, or quote it."
        ) from None
    finally:
        csv.field_size_limit(before)


def _reader(path: Path, text: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
