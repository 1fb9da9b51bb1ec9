"""First records of a file as a table for a page. Without Django, as it also runs as a separate process.

    python -m datasets.indexing.record_table FORMAT FILE NAME BYTES

writes the table as JSON. The process limits its memory (BYTES) and time, because compressed data may expand to any
size.

Only the first chunks are read, and the index is requested with short ones. Values are shortened, whatever they are.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from datasets import messages
from datasets.indexing import image_previews
from datasets.indexing.image_previews import Picture
from runtime.data.formats import gzipped, registry
from runtime.data.formats.base import Format
from runtime.data.recordio.header import HEADER_BYTES, NONE, Header
from runtime.data.span import Span
from runtime.errors import RegattaError
from runtime.messages import mapped, to_json

RECORDS = 100
COLUMNS = 50
CHUNK_BYTES = 128 * 1024  # target size, if the format allows a choice
MOST_BYTES = 32 * 1024**2  # total of all chunks that are read
TEXT_LIMIT = 300  # maximum characters of a cell
NAME_LIMIT = 80
MOST_PARTS = 1000  # parts of a record that are read
PICTURES = 32
PICTURE_BYTES = 2 * 1024**2  # total size of all pictures, as encoded
# Limits of the process.
MEMORY_BYTES = 1024**3
SECONDS = 20

_SAFE_INTEGER = 2**53  # browsers have no larger exact integers
_ITEMS = 16  # items of an array that are shown
# Column names for records without names, by format.
_NAMES: Mapping[str, Sequence[str]] = {
    "features": ("features", "label"),
    "idx": ("image", "label"),
    "image": ("file", "class"),
    "list": ("file", "label"),
}
_PACKED = frozenset({"npz", "parquet", "arrow"})
ALTERNATIVE = " or "  # separates the types of a column
_ALONE: Mapping[str, str] = {"text": "line", "npy": "row", "idx": "row"}


@dataclass(frozen=True)
class RecordTable:
    """Table of the first records.

    ``records`` are rows with one cell per column: None, a boolean, a number or a short text. ``pictures`` are those of
    some cells. ``more_columns`` are not shown; ``why`` gives the reason if there are fewer records than possible.
    """

    columns: list[dict[str, str]] = field(default_factory=list)
    records: list[list[Any]] = field(default_factory=list)
    pictures: list[dict[str, Any]] = field(default_factory=list)
    more_columns: int = 0
    why: str = ""


class TooMuch(RegattaError):
    """The first record needs more data than a preview reads."""


def first_records(path: Path, format_name: str, name: str, most: int = RECORDS) -> RecordTable:
    """Return the first records of a file, at most ``most``. ``name`` is the file's name in messages.

    For a file that cannot be read completely, return the records before the error and its message. Raises OSError.
    """
    rows = _Rows(format_name)
    try:
        for record in islice(_records(path, registry.named(format_name)), most):
            rows.add(record)
    except RegattaError as fault:
        return rows.table(mapped(str(fault), lambda text: text.replace(str(path), name)))
    return rows.table()


def is_compressed(path: Path, format_name: str) -> bool:
    """Return whether the file is compressed, so that the cost of reading it is unknown."""
    if registry.alike(registry.named(format_name), registry.named("recordio")):
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
        return len(head) == HEADER_BYTES and Header.unpack(head).compressor != NONE
    format_ = registry.named(format_name)
    return format_name in _PACKED or (format_.packable and gzipped.is_packed(path, format_.recognise))


def of_files(files: Iterable[tuple[str, bytes]]) -> RecordTable:
    """Return whole files as records: their paths and contents."""
    rows = _Rows("")
    for name, content in files:
        rows.add({"path": name, "file": content})
    return rows.table()


def first_chunks(path: Path, format_name: str) -> Iterator[Span]:
    """Yield the first chunks of a file, as many as a preview reads.

    Raises TooMuch if the first is too long, and the errors of the format.
    """
    left = MOST_BYTES
    for span in registry.named(format_name).index(path, CHUNK_BYTES):
        if span.length > left == MOST_BYTES:
            raise TooMuch(messages.PREVIEW_CHUNK_TOO_LARGE(size=span.length, most=MOST_BYTES))
        left -= span.length
        if left < 0:
            return
        yield span


def _records(path: Path, format_: Format) -> Iterator[Any]:
    for span in first_chunks(path, format_.name):
        yield from format_.read(path, span)


# --- Rows ------------------------------------------------------------------------------------------------------------
class _Rows:
    """Collects the cell, type and picture of each value."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name
        self._kind_of = _kind_of_text if format_name == "csv" else _kind
        self._kinds: dict[str, dict[str, None]] = {}
        self._cells: list[dict[str, Any]] = []
        self._pictures: list[dict[str, Any]] = []
        self._left = PICTURE_BYTES
        self._others: set[str] = set()

    def add(self, record: Any) -> None:
        cells: dict[str, Any] = {}
        for name, value in _named(record, self._format):
            if name not in self._kinds and len(self._kinds) == COLUMNS:
                self._others.add(name)
                continue
            self._kinds.setdefault(name, {})[self._kind_of(value)] = None
            cells[name] = _cell(value)
            self._draw(name, value)
        self._cells.append(cells)

    def _draw(self, name: str, value: Any) -> None:
        picture = _picture(value) if len(self._pictures) < PICTURES else None
        if picture is not None and len(picture.source) <= self._left:
            self._left -= len(picture.source)
            column = list(self._kinds).index(name)
            self._pictures.append({"record": len(self._cells), "column": column, **picture._asdict()})

    def table(self, why: str = "") -> RecordTable:
        columns = [{"name": name, "type": _type(kinds)} for name, kinds in self._kinds.items()]
        records = [[cells.get(name) for name in self._kinds] for cells in self._cells]
        return RecordTable(columns, records, self._pictures, len(self._others), why)


def _named(record: Any, format_name: str) -> Iterator[tuple[str, Any]]:
    """Return the parts of a record with their column names."""
    if isinstance(record, Mapping):
        return ((str(name)[:NAME_LIMIT], value) for name, value in islice(record.items(), MOST_PARTS))
    if isinstance(record, tuple):
        names = _NAMES.get(format_name, ())
        return ((names[at] if at < len(names) else str(at + 1), part) for at, part in enumerate(record[:MOST_PARTS]))
    return iter([(_ALONE.get(format_name, "value"), record)])


def _type(kinds: Mapping[str, None]) -> str:
    """Return one type, or several joined by "or". A column of integers and other numbers has the type "number"."""
    found = [kind for kind in kinds if kind != "empty" and not (kind == "integer" and "number" in kinds)]
    return ALTERNATIVE.join(found[:3]) or "empty"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} {' × '.join(map(str, value.shape))}".strip()
    if isinstance(value, np.generic):
        return value.dtype.name
    return next((word for kind, word in _KINDS if isinstance(value, kind)), type(value).__name__)


def _kind_of_text(value: Any) -> str:
    """Return the type of a CSV cell, which is always text."""
    text = str(value).strip()
    if not text:
        return "empty"
    for word, parse in (("integer", int), ("number", float)):
        try:
            parse(text[:40])
        except ValueError:
            continue
        return word
    return "text"


_KINDS: Sequence[tuple[type | tuple[type, ...], str]] = (
    (type(None), "empty"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((list, tuple), "list"),
    (Mapping, "object"),
)


# --- Cells -----------------------------------------------------------------------------------------------------------
def _cell(value: Any) -> Any:
    """Return a short form of the value: itself if it is a plain number or text, else a description."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _SAFE_INTEGER else _short(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _short_bytes(memoryview(value))
    if isinstance(value, np.ndarray):
        return _short_array(value)
    if isinstance(value, list | tuple | Mapping):
        return _short_nested(value)
    return _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def _short_bytes(data: memoryview) -> str:
    """Return the bytes as text if they are text, else their number and the first of them."""
    head = bytes(data[: 4 * TEXT_LIMIT])
    try:
        # The cut may be inside a character.
        text = head.decode() if len(head) == len(data) else head.decode(errors="ignore")
        if text.isprintable() or not any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text):
            return _short(text)
    except UnicodeDecodeError:
        pass
    return f"{len(data)} B: {head[:_ITEMS].hex(' ')}{' …' if len(data) > _ITEMS else ''}"


def _short_array(array: np.ndarray[Any, Any]) -> str:
    text = ", ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in array.flat[:_ITEMS].tolist())
    return _short(f"[{text}{', …' if array.size > _ITEMS else ''}]")


def _short_nested(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any]) -> str:
    try:
        return _short(json.dumps(value, ensure_ascii=False, default=lambda part: str(_cell(part))))
    except (RecursionError, ValueError, TypeError):  # nested too deeply, or keys that JSON does not support
        return _short(f"{type(value).__name__} ({len(value)})")


def _picture(value: Any) -> Picture | None:
    if isinstance(value, bytes | memoryview):
        return image_previews.of_file(value)
    return image_previews.of_array(value) if isinstance(value, np.ndarray) else None


# --- Command ---------------------------------------------------------------------------------------------------------
def main(format_name: str, path: str, name: str, memory: str) -> None:
    """Write the table of one untrusted file."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    table = first_records(Path(path), format_name, name)
    sys.stdout.write(json.dumps({**asdict(table), "why": to_json(table.why)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
