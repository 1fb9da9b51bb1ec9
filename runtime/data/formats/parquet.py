"""Parquet, if the package ``pyarrow`` is installed: row groups are chunks, rows are dicts.

Rows are unpacked a few at a time, because a row group of a few bytes may represent millions of equal rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runtime.data.errors import FormatError
from runtime.data.formats.base import too_large
from runtime.data.optional_imports import need
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages
from runtime.patience import is_shortage

_MAGIC = b"PAR1"
_ROWS_AT_ONCE = 1024


def recognise(head: bytes) -> bool:
    return head.startswith(_MAGIC)


def index(path: Path, chunk_bytes: int) -> Iterator[Span]:
    """Yield each row group as a chunk, whatever its size: ``chunk_bytes`` has no effect."""
    del chunk_bytes
    metadata = _opened(path).metadata
    return (_span(path, metadata.row_group(number)) for number in range(metadata.num_row_groups))


def read(path: Path, span: Span) -> Iterator[dict[str, Any]]:
    file = _opened(path)
    groups = range(file.metadata.num_row_groups)
    number = next((number for number in groups if _span(path, file.metadata.row_group(number)) == span), None)
    if number is None:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return _rows(path, span, file, number)


def _rows(path: Path, span: Span, file: Any, number: int) -> Iterator[dict[str, Any]]:
    try:
        for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[number]):
            yield from rows_of(batch)
    except Exception as error:
        if is_shortage(error):
            raise
        raise FormatError(
            messages.PARQUET_ROW_GROUP_UNREADABLE(
                where=messages.CHUNK_PLACE(path=path, offset=span.offset), error=error
            )
        ) from None


def rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record batch of Arrow. Lists of numbers are arrays of the file's own type."""
    types = {field.name: dtype for field in batch.schema if (dtype := _numbers_in(field.type)) is not None}
    for row in batch.to_pylist():
        for name, dtype in types.items():
            row[name] = _array(row[name], dtype)
        yield row


def _numbers_in(type_: Any) -> Any:
    """Return the NumPy type of the numbers in lists, or lists of lists, or None for any other type."""
    types = need("pyarrow.types", "pyarrow", messages.READING_PARQUET())
    inner = type_
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner = inner.value_type
    plain = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    return inner.to_pandas_dtype() if plain and inner is not type_ else None


def _array(value: Any, dtype: Any) -> Any:
    """Return an array, or the value unchanged if it is missing, contains missing numbers, or has lists of different
    lengths."""
    try:
        return value if value is None or _holds_none(value) else np.array(value, dtype)
    except ValueError:
        return value


def _holds_none(value: Any) -> bool:
    return any(item is None or (isinstance(item, list) and _holds_none(item)) for item in value)


def _opened(path: Path) -> Any:
    parquet = need("pyarrow.parquet", "pyarrow", messages.READING_PARQUET())
    path.stat()  # its OSError is clearer
    try:
        return parquet.ParquetFile(path)
    except Exception as error:
        if is_shortage(error):
            raise
        raise FormatError(messages.PARQUET_INVALID(where=path, error=error)) from None


def _span(path: Path, group: Any) -> Span:
    columns = [group.column(number) for number in range(group.num_columns)]
    begins = [
        place for column in columns for place in (column.dictionary_page_offset, column.data_page_offset) if place
    ]
    span = Span(min(begins, default=0), sum(column.total_compressed_size for column in columns), group.num_rows)
    if max(span.length, group.total_byte_size) > MAX_CHUNK_BYTES:
        raise too_large(path, span.offset, max(span.length, group.total_byte_size))
    return span
