"""NumPy's files: the rows of a ``.npy`` array, and the rows with the same number of all arrays of an ``.npz``.

Only arrays of plain numbers and text are read, never pickled objects. An ``.npz`` of ``np.savez`` is read in pieces;
one of ``np.savez_compressed`` has to be unpacked whole and is one chunk, if it is not too large for that. An array
without dimensions belongs to no row.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.data.errors import FormatError
from runtime.data.formats.base import read_bytes, too_large
from runtime.data.formats.span import MAX_CHUNK_BYTES, Span

Array = NDArray[Any]
_SUFFIX = ".npy"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# Of a local header in a zip file: its signature, and after 22 bytes the lengths of name and extra field.
_LOCAL = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
# What zipfile raises at hostile bytes; an OSError where they lead before the file's beginning.
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


class _Rows(NamedTuple):
    """An array in a file: its first byte, and what its rows are."""

    begin: int
    number: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def span(self, first: int, count: int) -> Span:
        return Span(self.begin + first * self.row_bytes, count * self.row_bytes, count)

    def array(self, data: bytes) -> Array:
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape)


# --- One array -------------------------------------------------------------------------------------------------------
def recognise_array(head: bytes) -> bool:
    return head.startswith(np.lib.format.MAGIC_PREFIX)


def index_array(path: Path, chunk_bytes: int) -> Iterator[Span]:
    rows = _array_in(path)
    return (rows.span(first, count) for first, count in _shares(rows.number, rows.row_bytes, chunk_bytes))


def read_array(path: Path, span: Span) -> Iterator[Any]:
    rows = _array_in(path)
    if span.length != span.records * rows.row_bytes:
        raise FormatError(f"{path}, chunk at {span.offset}: the file has changed since it was listed. List it again.")
    return iter(rows.array(read_bytes(path, span)))


def _array_in(path: Path) -> _Rows:
    with path.open("rb") as file:
        rows = _parse(str(path), file)
    return _checked(path, rows, path.stat().st_size)


def _shares(count: int, row_bytes: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows in shares of about ``chunk_bytes``: the first of each, and how many."""
    step = max(1, chunk_bytes // row_bytes)
    return ((first, min(step, count - first)) for first in range(0, count, step))


def _parse(where: str, file: IO[bytes]) -> _Rows:
    """Read the header of an array. ``begin`` is where the file then stands."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy warns of a header that it only half understands
            version = np.lib.format.read_magic(file)
            shape, by_column, dtype = _HEADERS[version](file)
    except Exception as error:  # noqa: BLE001  whatever NumPy's parser raises at hostile text: it is no header
        raise FormatError(f"{where}: this is no array of NumPy ({_first_line(error)}). Save it again.") from None
    if dtype.hasobject:
        raise FormatError(f"{where}: the array holds Python objects, which are not read. Save numbers or text.")
    if not shape:
        raise FormatError(f"{where}: the array has no rows. Save one with at least one dimension.")
    if by_column and len(shape) > 1:
        raise FormatError(f"{where}: the array lies column by column. Save np.ascontiguousarray(array).")
    return _Rows(file.tell(), int(shape[0]), tuple(int(size) for size in shape[1:]), dtype)


def _checked(path: Path | str, rows: _Rows, end: int) -> _Rows:
    if rows.number and rows.row_bytes == 0:
        raise FormatError(f"{path}: the rows of the array are empty. Save rows that hold something.")
    if rows.begin + rows.number * rows.row_bytes > end:
        raise FormatError(f"{path}: the file ends inside the array. It was cut short; copy it again.")
    return rows


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# --- Several arrays --------------------------------------------------------------------------------------------------
def recognise_arrays(head: bytes) -> bool:
    """A zip file whose first member is an array."""
    if len(head) < 30 or not head.startswith(_SIGNATURE):
        return False
    length = _LOCAL.unpack_from(head)[1]
    return head[30 : 30 + length].endswith(_SUFFIX.encode())


def index_arrays(path: Path, chunk_bytes: int) -> Iterator[Span]:
    with _opened(path) as archive:
        members = _members(path, archive)
        if not _stored(members):
            loaded = _load(path, archive, members)
            count = _common(path, {name: len(array) for name, array in loaded.items()})
            return iter([Span(0, path.stat().st_size, count)] if count else [])
    arrays = _arrays_in(path, members)
    count = _common(path, {name: rows.number for name, rows in arrays.items()})
    if not count:
        return iter([])
    all_of_a_row = sum(rows.row_bytes for rows in arrays.values())
    first = next(iter(arrays.values()))
    return (first.span(begin, many) for begin, many in _shares(count, all_of_a_row, chunk_bytes))


def read_arrays(path: Path, span: Span) -> Iterator[dict[str, Any]]:
    """Dicts of the rows by the names of their arrays. A chunk's place is that of its rows of the first array."""
    with _opened(path) as archive:
        members = _members(path, archive)
        arrays = _share(path, _arrays_in(path, members), span) if _stored(members) else _load(path, archive, members)
    if {len(array) for array in arrays.values()} != {span.records}:
        raise FormatError(f"{path}, chunk at {span.offset}: the file has changed since it was listed. List it again.")
    return ({name: array[row] for name, array in arrays.items()} for row in range(span.records))


def _opened(path: Path) -> zipfile.ZipFile:
    path.stat()  # whose OSError says what it is
    try:
        return zipfile.ZipFile(path)
    except _BAD_ZIP as error:
        raise _bad(path, error) from None


def _bad(path: Path, error: Exception) -> FormatError:
    return FormatError(f"{path}: this is no file of np.savez ({_first_line(error)}). Save it again.")


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
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise FormatError(f"{path}: the arrays have different numbers of rows ({told}). Save those of one length.")
    return next(iter(counts.values()))


def _load(path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, Array]:
    """All arrays, unpacked. What a member announces is an upper bound of what is unpacked of it."""
    size = sum(info.file_size for info in members.values())
    if size > MAX_CHUNK_BYTES:
        raise too_large(path, 0, size)
    loaded = {}
    for name, info in members.items():
        try:
            data = archive.read(info)
        except _BAD_ZIP as error:
            raise _bad(path, error) from None
        where = f"{path}, array {name}"
        file = io.BytesIO(data)
        rows = _checked(where, _parse(where, file), len(data))
        loaded[name] = rows.array(data[rows.begin : rows.begin + rows.number * rows.row_bytes])
    return loaded


def _arrays_in(path: Path, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, _Rows]:
    """Where the arrays of a file without compression lie. Raises FormatError where they lie over each other."""
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
            found[name] = _checked(where, _parse(where, file), end)
    places = sorted((rows.begin, rows.begin + rows.number * rows.row_bytes) for rows in found.values())
    if any(end > begin for (_begin, end), (begin, _end) in pairwise(places)):
        raise _bad(path, ValueError("its arrays lie over each other"))
    return found


def _share(path: Path, arrays: Mapping[str, _Rows], span: Span) -> dict[str, Array]:
    """The same rows of every array."""
    rows = next(iter(arrays.values()))
    first = (span.offset - rows.begin) // max(1, rows.row_bytes)
    if first < 0 or rows.span(first, span.records) != span._replace(digest=None):
        raise FormatError(f"{path}, chunk at {span.offset}: the file has changed since it was listed. List it again.")
    _common(path, {name: rows.number for name, rows in arrays.items()})
    return {name: rows.array(read_bytes(path, rows.span(first, span.records))) for name, rows in arrays.items()}
