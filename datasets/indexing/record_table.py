"""The first records of a file as a table that a page can show. No Django: it also runs as a process of its own.

    python -m datasets.indexing.record_table FORMAT FILE NAME BYTES

writes the table as JSON, under limits of its own of memory (BYTES) and time, for what is packed may unpack to anything.

Read are the first chunks, and an index is asked for short ones; what is shown of a value is short, whatever it is.
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

from datasets.indexing import image_previews
from datasets.indexing.image_previews import Picture
from runtime.data.formats import gzipped, registry
from runtime.data.formats.base import Format
from runtime.data.recordio.header import HEADER_BYTES, NONE, Header
from runtime.data.span import Span
from runtime.errors import RegattaError

RECORDS = 100
COLUMNS = 50
CHUNK_BYTES = 128 * 1024  # aimed at, where the format leaves the choice
MOST_BYTES = 32 * 1024**2  # of all chunks that are read
TEXT_LIMIT = 300  # characters of a cell
NAME_LIMIT = 80
MOST_PARTS = 1000  # of a record that are looked at
PICTURES = 32
PICTURE_BYTES = 2 * 1024**2  # of all of them, as they are written
# Of the process.
MEMORY_BYTES = 1024**3
SECONDS = 20

_SAFE_INTEGER = 2**53  # larger ones are no integers in browsers
_ITEMS = 16  # of an array that are written out
# What the items of a record without names are, where the format says so.
_NAMES: Mapping[str, Sequence[str]] = {
    "features": ("features", "label"),
    "idx": ("image", "label"),
    "image": ("file", "class"),
    "list": ("file", "label"),
}
_PACKED = frozenset({"npz", "parquet", "arrow"})
ALTERNATIVE = " or "  # between the types of a column
_ALONE: Mapping[str, str] = {"text": "line", "npy": "row", "idx": "row"}


@dataclass(frozen=True)
class Glance:
    """``records`` are rows: one cell for each column, which is None, a truth, a number or a short text. ``pictures``
    are those of some cells. ``more_columns`` are not shown; ``why`` says why there are fewer records than could be."""

    columns: list[dict[str, str]] = field(default_factory=list)
    records: list[list[Any]] = field(default_factory=list)
    pictures: list[dict[str, Any]] = field(default_factory=list)
    more_columns: int = 0
    why: str = ""


class TooMuch(RegattaError):
    """There is more to be read for the first record than a preview reads."""


def look(path: Path, format_name: str, name: str, most: int = RECORDS) -> Glance:
    """The first records of a file, at most ``most``. ``name`` is what messages call it. A file that cannot be read
    gives the records before the fault, and the message. Raises OSError."""
    rows = _Rows(format_name)
    try:
        for record in islice(_records(path, registry.named(format_name)), most):
            rows.add(record)
    except RegattaError as fault:
        return rows.table(str(fault).replace(str(path), name))
    return rows.table()


def swells(path: Path, format_name: str) -> bool:
    """Whether the file may hold more than its bytes, so that nobody knows what reading it takes."""
    if registry.alike(registry.named(format_name), registry.named("recordio")):
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
        return len(head) == HEADER_BYTES and Header.unpack(head).compressor != NONE
    format_ = registry.named(format_name)
    return format_name in _PACKED or (format_.packable and gzipped.is_packed(path, format_.recognise))


def of_files(files: Iterable[tuple[str, bytes]]) -> Glance:
    """Whole files as records: their paths and what is in them."""
    rows = _Rows("")
    for name, content in files:
        rows.add({"path": name, "file": content})
    return rows.table()


def first_chunks(path: Path, format_name: str) -> Iterator[Span]:
    """The first chunks of a file, as many as a look reads. Raises TooMuch where the first is too long for that, and as
    the format does."""
    left = MOST_BYTES
    for span in registry.named(format_name).index(path, CHUNK_BYTES):
        if span.length > left == MOST_BYTES:
            raise TooMuch(
                f"The first records lie in a chunk of {span.length} bytes; a preview reads up to {MOST_BYTES}."
            )
        left -= span.length
        if left < 0:
            return
        yield span


def _records(path: Path, format_: Format) -> Iterator[Any]:
    for span in first_chunks(path, format_.name):
        yield from format_.read(path, span)


# --- Rows ------------------------------------------------------------------------------------------------------------
class _Rows:
    """What is kept of the records: of each value its cell, its kind, and its picture."""

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

    def table(self, why: str = "") -> Glance:
        columns = [{"name": name, "type": _type(kinds)} for name, kinds in self._kinds.items()]
        records = [[cells.get(name) for name in self._kinds] for cells in self._cells]
        return Glance(columns, records, self._pictures, len(self._others), why)


def _named(record: Any, format_name: str) -> Iterator[tuple[str, Any]]:
    """The parts of a record, with the names of their columns."""
    if isinstance(record, Mapping):
        return ((str(name)[:NAME_LIMIT], value) for name, value in islice(record.items(), MOST_PARTS))
    if isinstance(record, tuple):
        names = _NAMES.get(format_name, ())
        return ((names[at] if at < len(names) else str(at + 1), part) for at, part in enumerate(record[:MOST_PARTS]))
    return iter([(_ALONE.get(format_name, "value"), record)])


def _type(kinds: Mapping[str, None]) -> str:
    """One kind, or several with "or" between them. Where some numbers are whole, all are numbers."""
    found = [kind for kind in kinds if kind != "empty" and not (kind == "integer" and "number" in kinds)]
    return ALTERNATIVE.join(found[:3]) or "empty"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} {' × '.join(map(str, value.shape))}".strip()
    if isinstance(value, np.generic):
        return value.dtype.name
    return next((word for kind, word in _KINDS if isinstance(value, kind)), type(value).__name__)


def _kind_of_text(value: Any) -> str:
    """Of a CSV's cell, which is always text."""
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
    """The value in short: what it is where it is a plain number or text, else a text about it."""
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
    """Text where they are text, else how many, and the first."""
    head = bytes(data[: 4 * TEXT_LIMIT])
    try:
        # What is cut at the end may be cut inside a character.
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
    except (RecursionError, ValueError, TypeError):  # nested too deeply, or keys that JSON does not have
        return _short(f"{type(value).__name__} ({len(value)})")


def _picture(value: Any) -> Picture | None:
    if isinstance(value, bytes | memoryview):
        return image_previews.of_file(value)
    return image_previews.of_array(value) if isinstance(value, np.ndarray) else None


# --- As a process ----------------------------------------------------------------------------------------------------
def main(format_name: str, path: str, name: str, memory: str) -> None:
    """Write what there is to be seen of one file, in which nobody trusts."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    sys.stdout.write(json.dumps(asdict(look(Path(path), format_name, name))))


if __name__ == "__main__":
    main(*sys.argv[1:])
