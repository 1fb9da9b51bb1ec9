"""Apache Arrow's stream of record batches (``.arrow``, HuggingFace ``save_to_disk``) and file format (``.feather``).

They are read if the package ``pyarrow`` is installed. Consecutive batches are a chunk; rows are dicts.

The index reads the messages' metadata and no columns. A message is -1 as i32, the length of its metadata as i32, the
metadata (a flatbuffer: version, type, header, length of the body), and the body. A length of 0 ends the stream.

Columns that HuggingFace describes as pictures, sounds or videos are the bytes of these.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from runtime.data.errors import FormatError
from runtime.data.formats.base import File, read_all, read_bytes, too_large
from runtime.data.formats.parquet import rows_of
from runtime.data.optional_imports import need
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages

_PREFIX = struct.Struct("<iI")
_CONTINUES = -1
_FILE = b"ARROW1\0\0"
_ALIGNED = 8
_MOST_METADATA = 16 << 20
_ROWS_AT_ONCE = 1024
# Fields of the flatbuffers Message and RecordBatch, by their place in the table.
_TYPE, _HEADER, _BODY = 1, 2, 3
_ROWS, _COMPRESSION = 0, 3
_SCHEMA, _BATCH = 1, 3
# Maximum number of rows for a byte of a body: one bit each.
_ROWS_OF_A_BYTE = 8
_END = _PREFIX.pack(_CONTINUES, 0)
# Types that HuggingFace stores as {"bytes", "path"}.
_FILES = frozenset({"Image", "Audio", "Video", "Pdf"})
_READABLE = (
    "is_null", "is_boolean", "is_integer", "is_floating", "is_decimal", "is_string", "is_large_string", "is_binary",
    "is_large_binary", "is_fixed_size_binary", "is_date", "is_time", "is_timestamp", "is_duration",
)  # fmt: skip
_NESTED = ("is_struct", "is_list", "is_large_list", "is_fixed_size_list", "is_map")


class _Message(NamedTuple):
    """A message. ``end`` is the offset after its body. ``rows`` is the announced number of rows of a record batch."""

    offset: int
    end: int
    kind: int
    rows: int
    packed: bool


def recognise(head: bytes) -> bool:
    if head.startswith(_FILE):
        return True
    if len(head) < _PREFIX.size + 4:
        return False
    continues, length, root = struct.unpack_from("<iII", head)
    return bool(continues == _CONTINUES and length % _ALIGNED == 0 and 4 <= root < length <= _MOST_METADATA)


def index(path: File, chunk_bytes: int) -> Iterator[Span]:
    """Yield chunks of record batches up to ``chunk_bytes`` together. A longer batch is a chunk of its own."""
    first, *batches = _messages(path)
    _schema(path, first)
    begin, rows = first.end, 0
    for batch in batches:
        if rows and batch.end - begin > chunk_bytes:
            yield Span(begin, batch.offset - begin, rows)
            begin, rows = batch.offset, 0
        rows += batch.rows
        if batch.end - begin > MAX_CHUNK_BYTES:
            raise too_large(path, begin, batch.end - begin)
    if rows:
        yield Span(begin, batches[-1].end - begin, rows)


def read(path: File, span: Span) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        first = _message(path, file, _begin(file), path.stat().st_size)
    schema = _schema(path, first)
    batches = _batches(path, span, schema, read_bytes(path, span))
    if sum(batch.num_rows for batch in batches) != span.records:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return _rows(path, span, batches, _file_columns(schema))


# --- Messages --------------------------------------------------------------------------------------------------------
def _messages(path: File) -> list[_Message]:
    """Return all messages up to the end of the stream, the schema first."""
    size, found = path.stat().st_size, list[_Message]()
    with path.open("rb") as file:
        place = begin = _begin(file)
        while read_all(_at(file, place).read, len(_END)) != _END:
            found.append(_message(path, file, place, size))
            place = found[-1].end
    if not found:
        raise FormatError(messages.ARROW_SCHEMA_MISSING(path=path))
    for each in found[1:]:
        _check(path, each)
    if begin == 0 and place + len(_END) != size:
        raise FormatError(messages.ARROW_TRAILING_BYTES(where=messages.OFFSET_PLACE(path=path, offset=place)))
    return found


def _check(path: File, batch: _Message) -> None:
    where = messages.OFFSET_PLACE(path=path, offset=batch.offset)
    if batch.kind != _BATCH:
        raise FormatError(messages.ARROW_DICTIONARY_UNSUPPORTED(where=where))
    if batch.packed:
        raise FormatError(messages.ARROW_COMPRESSION_UNSUPPORTED(where=where))
    if not 0 <= batch.rows <= _ROWS_OF_A_BYTE * (batch.end - batch.offset):
        raise FormatError(messages.ARROW_BATCH_TOO_SHORT(where=where, count=batch.rows))


def _begin(file: IO[bytes]) -> int:
    return len(_FILE) if read_all(file.read, len(_FILE)) == _FILE else 0


def _at(file: IO[bytes], place: int) -> IO[bytes]:
    file.seek(place)
    return file


def _message(path: File, file: IO[bytes], offset: int, size: int) -> _Message:
    head = read_all(_at(file, offset).read, _PREFIX.size)
    if len(head) < _PREFIX.size:
        raise _cut_short(path, offset)
    continues, length = _PREFIX.unpack(head)
    if continues != _CONTINUES or not 0 < length <= _MOST_METADATA or length % _ALIGNED:
        raise FormatError(messages.ARROW_MESSAGE_MISSING(where=messages.OFFSET_PLACE(path=path, offset=offset)))
    metadata = read_all(file.read, length)
    try:
        table = _Table.root(metadata)
        header, body = table.table(_HEADER), table.number(_BODY, "<q")
        kind = table.number(_TYPE, "<B")
        rows, packed = header.number(_ROWS, "<q") if kind == _BATCH else 0, header.has(_COMPRESSION)
    except struct.error:
        raise FormatError(
            messages.ARROW_MESSAGE_MISSING(where=messages.OFFSET_PLACE(path=path, offset=offset))
        ) from None
    end = offset + _PREFIX.size + length + body
    if body < 0 or end > size:
        raise _cut_short(path, offset)
    return _Message(offset, end, kind, rows, kind == _BATCH and packed)


def _cut_short(path: File, offset: int) -> FormatError:
    return FormatError(messages.ARROW_STREAM_TRUNCATED(where=messages.OFFSET_PLACE(path=path, offset=offset)))


class _Table(NamedTuple):
    """A table of a flatbuffer. Raises struct.error if it leads outside the bytes."""

    data: bytes
    place: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _unpack("<I", data, 0))

    def _field(self, number: int) -> int:
        """Return the place of a field, or 0 if the table does not have it."""
        vtable = self.place - _unpack("<i", self.data, self.place)
        at = 4 + 2 * number
        offset = _unpack("<H", self.data, vtable + at) if at < _unpack("<H", self.data, vtable) else 0
        return self.place + offset if offset else 0

    def has(self, number: int) -> bool:
        return bool(self._field(number))

    def number(self, number: int, layout: str) -> int:
        place = self._field(number)
        return _unpack(layout, self.data, place) if place else 0

    def table(self, number: int) -> _Table:
        place = self._field(number)
        return _Table(self.data, place + _unpack("<I", self.data, place))


def _unpack(layout: str, data: bytes, place: int) -> int:
    if place < 0:
        raise struct.error("before the first byte")
    found: int = struct.unpack_from(layout, data, place)[0]
    return found


# --- Columns ---------------------------------------------------------------------------------------------------------
def _schema(path: File, message: _Message) -> Any:
    """Return the schema. Raises FormatError if a column is of an unsupported type."""
    ipc = _ipc()
    if message.kind != _SCHEMA:
        raise FormatError(messages.ARROW_SCHEMA_MISSING(path=path))
    data = read_bytes(path, Span(message.offset, message.end - message.offset, 0))
    try:
        schema = ipc.read_schema(ipc.read_message(data))
        unread = next((field for field in schema if not _is_readable(_stored(field.type))), None)
    except Exception as error:  # noqa: BLE001  pyarrow raises several
        raise FormatError(messages.ARROW_SCHEMA_DAMAGED(path=path, error=error)) from None
    if unread is not None:
        raise FormatError(messages.COLUMN_TYPE_UNSUPPORTED(path=path, name=f"{unread.name!r}", type=unread.type))
    return schema


def _is_readable(type_: Any) -> bool:
    types = _types()
    if any(getattr(types, name)(type_) for name in _NESTED):
        return all(_is_readable(type_.field(number).type) for number in range(type_.num_fields))
    return any(getattr(types, name)(type_) for name in _READABLE)


def _stored(type_: Any) -> Any:
    """Return the stored type of an extension type that a package has registered, such as HuggingFace's Array2D."""
    return getattr(type_, "storage_type", type_)


def _file_columns(schema: Any) -> frozenset[str]:
    """Return the columns that HuggingFace describes as files."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return frozenset(name for name, feature in features.items() if feature.get("_type") in _FILES)
    except (KeyError, ValueError, TypeError, AttributeError):
        return frozenset()


# --- Rows ------------------------------------------------------------------------------------------------------------
def _batches(path: File, span: Span, schema: Any, data: bytes) -> list[Any]:
    """Return the record batches of a chunk, checked: data that pyarrow unpacks must not lead outside its bytes."""
    ipc, found = _ipc(), list[Any]()
    try:
        for message in ipc.MessageReader.open_stream(data):
            batch = ipc.read_record_batch(message, schema)
            batch.validate(full=True)
            found.append(_plain(batch))
    except Exception as error:  # noqa: BLE001  pyarrow raises several
        raise _damaged(path, span, error) from None
    return found


def _plain(batch: Any) -> Any:
    pyarrow = need("pyarrow", "pyarrow", messages.READING_ARROW())
    columns = [getattr(column, "storage", column) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _rows(path: File, span: Span, batches: list[Any], files: frozenset[str]) -> Iterator[dict[str, Any]]:
    try:
        for batch in batches:
            for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
                for row in rows_of(batch.slice(begin, _ROWS_AT_ONCE)):
                    for name in files:
                        row[name] = _content(path, span, name, row[name])
                    yield row
    except FormatError:
        raise
    except Exception as error:  # noqa: BLE001  for example a time outside the calendar
        raise _damaged(path, span, error) from None


def _content(path: File, span: Span, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.get("bytes") is None and value.get("path") is not None:
        raise FormatError(
            messages.COLUMN_FILE_NOT_EMBEDDED(
                where=messages.CHUNK_PLACE(path=path, offset=span.offset),
                name=f"{name!r}",
                path=f"{str(value['path'])[:200]!r}",
            )
        )
    return value.get("bytes")


def _damaged(path: File, span: Span, error: Exception) -> FormatError:
    return FormatError(
        messages.ARROW_BATCHES_UNREADABLE(where=messages.CHUNK_PLACE(path=path, offset=span.offset), error=error)
    )


def _ipc() -> Any:
    return need("pyarrow.ipc", "pyarrow", messages.READING_ARROW())


def _types() -> Any:
    return need("pyarrow.types", "pyarrow", messages.READING_ARROW())
