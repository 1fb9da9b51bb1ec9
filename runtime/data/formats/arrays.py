"""NumPy files: the rows of a ``.npy`` array, and the rows with the same number of all arrays of an ``.npz``.

Only arrays of plain numbers and text are read, never pickled objects. An ``.npz`` of ``np.savez`` is read in pieces.
One of ``np.savez_compressed`` has to be unpacked whole and is one chunk, if it is not too large for that. An array
without dimensions belongs to no row. If the name of every array names a split, and there are several (``x_train``,
``y_train``, ``x_test``, ``y_test``), the arrays of each split are its columns ``x`` and ``y``.

Arrays in Fortran order are stored column by column. Their chunks have the offsets that the rows would have in C order,
and are gathered from all columns.
"""

from __future__ import annotations

import ast
import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from runtime.data.checksums import crc32
from runtime.data.errors import FormatError
from runtime.data.formats.base import File, read_all, read_bytes, too_large
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.data.splits import split_of
from runtime.messages import data as messages
from runtime.patience import is_shortage

Array = NDArray[Any]
Found = TypeVar("Found")
_SUFFIX = ".npy"
_MOST_IN_A_HEADER = 10_000  # bytes; NumPy's own limit
# Local header in a zip file: its signature, and after 22 bytes the lengths of name and extra field.
_LOCAL = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
# Exceptions of zipfile for hostile bytes; an OSError if they lead before the start of the file.
_BAD_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    IndexError,
    RuntimeError,
    EOFError,
    OverflowError,
    ValueError,
    OSError,
)


class Rows(NamedTuple):
    """An array in a file: the offset of its first byte, and its rows. ``by_column``: in Fortran order."""

    begin: int
    number: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool = False

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        return self.begin + self.number * self.row_bytes

    def span(self, first: int, count: int) -> Span:
        return Span(self.begin + first * self.row_bytes, count * self.row_bytes, count)

    def array(self, data: bytes, count: int) -> Array:
        """Return ``count`` rows from their bytes; all rows if they are stored column by column."""
        shape = (count, *self.shape)
        return np.frombuffer(data, self.dtype).reshape(shape, order="F" if self.by_column else "C")


# --- One array -------------------------------------------------------------------------------------------------------
def recognise_array(head: bytes) -> bool:
    return head.startswith(np.lib.format.MAGIC_PREFIX)


def index_array(path: File, chunk_bytes: int) -> Iterator[Span]:
    return spans_of(path, _array_in(path), chunk_bytes)


def read_array(path: File, span: Span) -> Iterator[Any]:
    return iter(rows_of(path, _array_in(path), span))


def spans_of(path: File, rows: Rows, chunk_bytes: int) -> Iterator[Span]:
    """Yield the chunks of an array. A gathered chunk has a digest of its gathered bytes."""
    for first, count in _shares(rows.number, rows.row_bytes, chunk_bytes):
        span = rows.span(first, count)
        yield span._replace(digest=crc32(_gathered(path, rows, first, count).tobytes())) if rows.by_column else span


def rows_of(path: File, rows: Rows, span: Span) -> Array:
    """Return the rows of a chunk. Raises FormatError if it is not a chunk of this array."""
    changed = messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
    first = (span.offset - rows.begin) // max(1, rows.row_bytes)
    if first < 0 or rows.span(first, span.records) != span._replace(digest=None, split=""):
        raise FormatError(changed)
    if not rows.by_column:
        return rows.array(read_bytes(path, span), span.records)
    found = _gathered(path, rows, first, span.records)
    if span.digest is not None and crc32(found.tobytes()) != span.digest:
        raise FormatError(changed)
    return found


def checked(where: object, rows: Rows, end: int) -> Rows:
    """Return the array, if its rows are not empty and its bytes are present."""
    if rows.number and rows.row_bytes == 0:
        raise FormatError(messages.ARRAY_ROWS_EMPTY(where=where))
    if rows.end > end:
        raise FormatError(messages.ARRAY_TRUNCATED(where=where))
    return rows


def _array_in(path: File) -> Rows:
    with path.open("rb") as file:
        rows = _parse(str(path), file)
    return checked(path, rows, path.stat().st_size)


def _shares(count: int, row_bytes: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide rows into shares of about ``chunk_bytes``. Yields the first row and the number of rows of each."""
    step = max(1, chunk_bytes // max(1, row_bytes))
    return ((first, min(step, count - first)) for first in range(0, count, step))


def _gathered(path: File, rows: Rows, first: int, count: int) -> Array:
    """Return rows of an array that is stored column by column."""
    size = rows.dtype.itemsize
    if count * rows.row_bytes > MAX_CHUNK_BYTES:
        raise too_large(path, rows.begin, count * rows.row_bytes)
    parts = []
    with path.open("rb", buffering=0) as file:
        for column in range(math.prod(rows.shape)):
            file.seek(rows.begin + (column * rows.number + first) * size)
            parts.append(read_all(file.read, count * size))
    data = b"".join(parts)
    if len(data) != count * rows.row_bytes:
        raise FormatError(messages.CHUNK_TRUNCATED_SINCE_INDEXED(path=path, offset=rows.begin))
    return np.ascontiguousarray(rows.array(data, count))


def _parse(where: str, file: IO[bytes]) -> Rows:
    """Read the header of an array. ``begin`` is the file's position afterwards."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy warns of a header that it parses only in part
            version = np.lib.format.read_magic(file)
            shape, by_column, dtype = _HEADERS[version](file)
    except Exception as error:  # noqa: BLE001  NumPy's parser may raise anything for hostile text: it is no header
        raise FormatError(messages.NPY_INVALID(where=where, error=_first_line(error))) from None
    if dtype.hasobject:
        raise FormatError(messages.ARRAY_OF_OBJECTS(where=where))
    if not shape:
        raise FormatError(messages.ARRAY_WITHOUT_ROWS(where=where))
    return Rows(file.tell(), int(shape[0]), tuple(int(size) for size in shape[1:]), dtype, by_column and len(shape) > 1)


def _header_3(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a header of version 3.0: that of 2.0 in UTF-8, for which NumPy has no public function."""
    length = struct.unpack("<I", file.read(4))[0]
    if length > _MOST_IN_A_HEADER:
        raise ValueError("its header is too long")
    header = ast.literal_eval(file.read(length).decode())
    shape, by_column = header["shape"], header["fortran_order"]
    if header.keys() != {"descr", "fortran_order", "shape"} or type(by_column) is not bool:
        raise ValueError("its header is none")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("its shape is none")
    return tuple(shape), by_column, np.lib.format.descr_to_dtype(header["descr"])


_HEADERS: Mapping[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): _header_3,
}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# --- Several arrays --------------------------------------------------------------------------------------------------
def recognise_arrays(head: bytes) -> bool:
    """Return whether the file is a zip file whose first member is an array."""
    if len(head) < 30 or not head.startswith(_SIGNATURE):
        return False
    length = _LOCAL.unpack_from(head)[1]
    return head[30 : 30 + length].endswith(_SUFFIX.encode())


def index_arrays(path: Path, chunk_bytes: int) -> Iterator[Span]:
    """Yield the chunks of all splits, in the order of their first arrays in the file."""
    with _opened(path) as archive:
        members = _members(path, archive)
        groups = _groups(members)
        if not _stored(members):
            return iter([span for split in groups for span in _whole(path, archive, members, split)])
    arrays = _arrays_in(path, members)
    return (span for split in groups for span in _pieces(path, _of_split(arrays, split), split, chunk_bytes))


def read_arrays(path: Path, span: Span) -> Iterator[dict[str, Any]]:
    """Yield dicts of the rows by the names of their arrays. A chunk's offset is that of its rows of the first array."""
    with _opened(path) as archive:
        members = _members(path, archive)
        if _stored(members):
            arrays = _share(path, _arrays_in(path, members), span)
        else:
            ours = _of_split(members, _split_at(members, span.offset))
            arrays = _load(path, archive, ours)
    if {len(array) for array in arrays.values()} != {span.records}:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return ({name: array[row] for name, array in arrays.items()} for row in range(span.records))


def splits(path: Path) -> Sequence[str]:
    """Return the splits that the names of the arrays contain, if they do."""
    with _opened(path) as archive:
        found = _groups(_members(path, archive))
    return [] if found == [""] else found


def _whole(path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], split: str) -> Iterator[Span]:
    """Yield the one chunk of a split with packed arrays: the whole file, or the offset of the split's first array."""
    ours = _of_split(members, split)
    count = _common(path, {name: len(array) for name, array in _load(path, archive, ours).items()})
    first = next(iter(ours.values()))
    if count:
        offset, length = (first.header_offset, max(1, first.compress_size)) if split else (0, path.stat().st_size)
        yield Span(offset, length, count, split=split)


def _pieces(path: Path, arrays: Mapping[str, Rows], split: str, chunk_bytes: int) -> Iterator[Span]:
    count = _common(path, {name: rows.number for name, rows in arrays.items()})
    all_of_a_row = sum(rows.row_bytes for rows in arrays.values())
    first = next(iter(arrays.values()))
    for begin, many in _shares(count, all_of_a_row, chunk_bytes):
        yield first.span(begin, many)._replace(split=split)


# --- Splits ---
def _groups(names: Iterable[str]) -> list[str]:
    """Return the splits that arrays name, in the order of the arrays.

    The result is one split without a name if not every array names one, all name the same, or two arrays of a split
    would have the same column name.
    """
    named = {name: split_of(name) for name in names}
    columns = {(split, _column(name)) for name, split in named.items()}
    found = list(dict.fromkeys(named.values()))
    return found if len(found) > 1 and all(found) and len(columns) == len(named) else [""]


def _of_split(arrays: Mapping[str, Found], split: str) -> dict[str, Found]:
    """Return the arrays of a split by the names of their columns."""
    return (
        {_column(name): array for name, array in arrays.items() if split_of(name) == split} if split else dict(arrays)
    )


def _split_at(members: Mapping[str, zipfile.ZipInfo], offset: int) -> str:
    """Return the split whose chunk has that offset."""
    groups = _groups(members)
    first = {next(iter(_of_split(members, split).values())).header_offset: split for split in groups}
    return first.get(offset, groups[0])


def _column(name: str) -> str:
    """Return the name of an array without its split: ``x`` for ``x_train``."""
    words = re.split(r"[^A-Za-z0-9]+", name)
    return "_".join(word for word in words if not split_of(word)) or "value"


def _opened(path: Path) -> zipfile.ZipFile:
    path.stat()  # its OSError names the cause
    try:
        return zipfile.ZipFile(path)
    except _BAD_ZIP as error:
        if is_shortage(error):
            raise
        raise _bad(path, error) from None


def _bad(path: Path, error: Exception) -> FormatError:
    return FormatError(messages.NPZ_INVALID(where=path, error=_first_line(error)))


def _members(path: Path, archive: zipfile.ZipFile) -> Mapping[str, zipfile.ZipInfo]:
    found = {info.filename.removesuffix(_SUFFIX): info for info in archive.infolist()}
    others = [info.filename for info in archive.infolist() if not _is_array(info)]
    if others or not found or len(found) != len(archive.infolist()):
        why = f"{others[0]!r} is no readable array" if others else "its names are not one for each array"
        raise _bad(path, ValueError(why))
    return found


def _is_array(info: zipfile.ZipInfo) -> bool:
    encrypted = info.flag_bits & 1
    return info.filename.endswith(_SUFFIX) and not encrypted and info.header_offset >= 0


def _stored(members: Mapping[str, zipfile.ZipInfo]) -> bool:
    return all(info.compress_type == zipfile.ZIP_STORED for info in members.values())


def _common(path: Path, counts: Mapping[str, int]) -> int:
    if len(set(counts.values())) > 1:
        described = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise FormatError(messages.ARRAY_LENGTHS_DIFFER(where=path, counts=described))
    return next(iter(counts.values()))


def _load(path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, Array]:
    """Return all arrays, unpacked. The announced size of a member is an upper bound of the bytes unpacked from it."""
    size = sum(info.file_size for info in members.values())
    if size > MAX_CHUNK_BYTES:
        raise FormatError(messages.COMPRESSED_ARRAYS_TOO_LARGE(where=path, size=size, most=MAX_CHUNK_BYTES))
    loaded = {}
    for name, info in members.items():
        try:
            data = archive.read(info)
        except _BAD_ZIP as error:
            if is_shortage(error):
                raise
            raise _bad(path, error) from None
        where = f"{path}, array {name}"
        file = io.BytesIO(data)
        rows = checked(where, _parse(where, file), len(data))
        loaded[name] = rows.array(data[rows.begin : rows.end], rows.number)
    return loaded


def _arrays_in(path: Path, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, Rows]:
    """Return the places of the arrays of an uncompressed file. Raises FormatError if they overlap."""
    size = path.stat().st_size
    found = {}
    with path.open("rb") as file:
        for name, info in members.items():
            where = f"{path}, array {name}"
            file.seek(info.header_offset)
            head = file.read(_LOCAL.size)
            if len(head) < _LOCAL.size or not head.startswith(_SIGNATURE):
                raise _bad(path, ValueError(f"{name} is not where the file says"))
            file.seek(sum(_LOCAL.unpack(head)[1:]), io.SEEK_CUR)
            end = min(size, file.tell() + info.file_size)
            found[name] = checked(where, _parse(where, file), end)
    places = sorted((rows.begin, rows.end) for rows in found.values())
    if any(end > begin for (_begin, end), (begin, _end) in pairwise(places)):
        raise _bad(path, ValueError("its arrays lie over each other"))
    return found


def _share(path: Path, arrays: Mapping[str, Rows], span: Span) -> dict[str, Array]:
    """Return the same rows of every array of a split."""
    groups = [_of_split(arrays, split) for split in _groups(arrays)]
    ours = next((group for group in groups if _begins_in(next(iter(group.values())), span)), groups[0])
    rows = next(iter(ours.values()))
    first = (span.offset - rows.begin) // max(1, rows.row_bytes)
    if first < 0 or rows.span(first, span.records) != span._replace(digest=None, split=""):
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    _common(path, {name: each.number for name, each in ours.items()})
    return {name: rows_of(path, each, each.span(first, span.records)) for name, each in ours.items()}


def _begins_in(rows: Rows, span: Span) -> bool:
    return rows.begin <= span.offset < rows.end
