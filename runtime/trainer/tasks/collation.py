"""The conversion of records without ``decode``, and the collation of records to batches.

Rows with names become a dict of arrays, one for each name; tuples a tuple of arrays; other records one array. Cells of
CSV have no types: a column whose cells are all integers is int64, one of numbers is float32 (an empty cell is NaN), any
other is text. For Parquet, JSON lines and other formats with types, integers are int64 (uint64 if they do not fit),
booleans bool, others float32; a missing number or boolean is NaN. Arrays keep their types. Text, bytes and values of
different shapes become an array of objects.

The parts of a WebDataset sample are decoded by their extension. Pictures, of samples and of ``.list`` files, become
arrays (``runtime.data.pictures``) if Pillow is installed; otherwise they stay bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.data.formats.webdataset import KEY
from runtime.data.pictures import picture
from runtime.errors import UsageError
from runtime.messages import training as messages

Array = NDArray[Any]

# A format whose cells are text that may be numbers.
_UNTYPED = "csv"


# --- One record ------------------------------------------------------------------------------------------------------
def decoder(format_: str) -> Callable[[Any], Any] | None:
    """The default decoder of a format; None if records are used unchanged."""
    return _DECODERS.get(format_)


def _sample(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if name == KEY else _PARTS.get(name.rpartition(".")[2], bytes)(value)
        for name, value in record.items()
    }


def _labelled(record: tuple[bytes, Any]) -> tuple[Any, Any]:
    content, label = record
    return picture(content), label


def _with_pictures(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: picture(value) if isinstance(value, bytes) else value for name, value in record.items()}


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "webdataset": _sample,
    "list": _labelled,
    "image": _labelled,
    "example": _with_pictures,
    "arrow": _with_pictures,
}
_PARTS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "id", "index", "inx"), int),
    **dict.fromkeys(("txt", "text", "transcript"), lambda content: content.decode()),
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff"), picture),
    "npy": lambda content: np.load(io.BytesIO(content), allow_pickle=False),
}


# --- A batch ---------------------------------------------------------------------------------------------------------
def stack(rows: Sequence[Any], format_: str = "") -> Any:
    """Rows as arrays: a dict of them for rows with names, a tuple of them for tuples, else one array.

    ``format_`` is that of the rows as they were read; empty if the script has decoded them. Raises UsageError for
    tuples of different lengths.
    """
    column = _column_of_cells if format_ == _UNTYPED else _column
    if all(isinstance(row, dict) for row in rows):
        names = rows[0] if all(row.keys() == rows[0].keys() for row in rows) else _all_names(rows)
        return {name: column([row.get(name) for row in rows]) for name in names}
    if not isinstance(rows[0], tuple):
        return _column(rows)
    if len(set(map(len, rows))) > 1:
        raise UsageError(messages.BATCH_RAGGED())
    return tuple(column(values) for values in zip(*rows, strict=True))


def _all_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _column_of_cells(cells: Sequence[str]) -> Array:
    if any("_" in cell for cell in cells):  # Python would parse it as a number, though it is text
        return _objects(cells)
    for cells_as_text, dtype in ((cells, np.int64), ([cell or "nan" for cell in cells], np.float32)):
        try:
            return np.array(cells_as_text).astype(dtype)
        except (ValueError, OverflowError):
            continue
    return _objects(cells)


def _column(values: Sequence[Any]) -> Array:
    """An array; plain floats become float32 like the features, plain integers int64."""
    if isinstance(values[0], np.ndarray):
        return _of_arrays(values)
    kinds = set(map(type, values))
    if None.__class__ in kinds and kinds <= _NUMBERS | {None.__class__} and len(kinds) > 1:
        return np.array([np.nan if value is None else value for value in values], np.float32)
    if kinds & _OBJECTS:
        return _objects(values)
    try:
        array = np.array(values, _whole_type(values) if kinds == {int} else None)
    except (ValueError, OverflowError):
        return _objects(values)
    return array.astype(np.float32) if kinds & _PLAIN and array.dtype == np.float64 else array


def _whole_type(values: Sequence[int]) -> type[np.generic]:
    """The type that keeps all digits; NumPy would choose float64 for some numbers above and some below 2**63."""
    return np.uint64 if max(values) >= 2**63 else np.int64


def _of_arrays(values: Sequence[Any]) -> Array:
    if len({np.shape(value) for value in values}) > 1:
        return _objects(values)
    return np.array(values)


def _objects(values: Sequence[Any]) -> Array:
    """An array of the unchanged values; NumPy would cut text and bytes at trailing zeros, and split lists."""
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


_NUMBERS = frozenset({int, float, bool})
# Types without a width of their numbers.
_PLAIN = frozenset({float, list})
_OBJECTS = frozenset({str, bytes, memoryview, dict, tuple, None.__class__})
