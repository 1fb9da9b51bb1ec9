"""Dialect of a CSV file: separator, column names, comments, decimal commas. Pure.

``layout`` decides from the first bytes of a file, so that every process that reads a chunk of it decides the same.

  - Lines that begin with ``#`` before the first row are comments. The last one names the columns if it has the cells
    of the first row and that row holds numbers, or no blank follows the ``#``.
  - The separator is a comma if that divides all rows alike; else the one of comma, ``;``, TAB and ``|`` that divides
    the most rows alike, and more than half of them; else a comma. If another one divides all rows alike too and its
    cells with commas are numbers, that one is chosen: ``1,5;2,5`` has two cells.
  - The first row names the columns if no cell of it is empty or a number and no two are the same. With numbers below
    it, empty and repeated names are allowed: they become ``column 1`` and ``price.1``.
  - With ``;``, a column of numbers of which some have decimal commas is read with points.
"""

from __future__ import annotations

import csv
import io
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

HEAD_BYTES = 1 << 20

_SAMPLE_ROWS = 200
# A separator that divides more than this share of the rows alike is chosen; the other rows are errors.
_MOST_ROWS = 0.5
_MOST_IN_A_CELL = 64 << 20
_COMMA, _SEMICOLON, _TAB = ",", ";", "\t"
_SEPARATORS = (_COMMA, _SEMICOLON, _TAB, "|")
_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors put before the first line
_PREAMBLE = re.compile(rb"(?:\xef\xbb\xbf)?(?:#[^\r\n]*(?:\r\n|\r|\n|\Z)|\r\n|\r|\n)*")
_DECIMAL = re.compile(r"\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*")
# csv's limit of a cell's size applies to the whole process.
_LIMIT = threading.Lock()

Rows = list[list[str]]


class Layout(NamedTuple):
    """Layout of a CSV file. ``begin``: bytes before the first row. ``header``: that row has the names and is no record.

    ``decimals``: the columns with decimal commas. ``rival``: the likely separator if none divides all rows alike, or
    empty.
    """

    separator: str
    begin: int = 0
    columns: tuple[str, ...] = ()
    header: bool = False
    decimals: frozenset[int] = frozenset()
    rival: str = ""


def layout(head: bytes, suffix: str) -> Layout:
    """Return the layout of a file by its first HEAD_BYTES and the suffix of its name: ``.tsv`` is separated by TAB."""
    found = _PREAMBLE.match(head)
    begin = found.end() if found else 0
    # A character that is cut off at the end is not in the sample, unless that is longer than any sensible one.
    text = head[begin:].decode(errors="replace")
    samples = {each: _sample(text, each) for each in ((_TAB,) if suffix.lower() == ".tsv" else _SEPARATORS)}
    separator, rival = _separator(samples)
    rows = samples[separator]
    if not rows:
        return Layout(separator, begin)
    first, below = rows[0], rows[1:]
    from_comment = _comment_names(head[:begin], separator, first)
    header = not from_comment and _is_header(first, below, separator)
    columns = from_comment or (tuple(_unique(first)) if header else ())
    return Layout(separator, begin, columns, header, _decimals(below if header else rows, separator), rival)


def rows_of(text: str, separator: str) -> Rows:
    """Return the rows that have cells. Raises csv.Error."""
    with _limit():
        return [row for row in _reader(text, separator) if row]


def with_point(cell: str) -> str:
    """Return a number with a decimal comma as one with a point, and other cells unchanged."""
    return cell.replace(_COMMA, ".") if _DECIMAL.fullmatch(cell) else cell


def _reader(text: str, separator: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)


@contextmanager
def _limit() -> Iterator[None]:
    """Set the same limit in every process, whatever a script has set, and restore it."""
    with _LIMIT:
        before = csv.field_size_limit(_MOST_IN_A_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)


# --- The separator ---------------------------------------------------------------------------------------------------
def _sample(text: str, separator: str) -> Rows:
    """Return the first rows, up to the first invalid one."""
    rows: Rows = []
    with _limit():
        try:
            rows.extend(row for row in islice(_reader(text, separator), _SAMPLE_ROWS) if row)
        except csv.Error:
            return rows
    return rows


def _separator(samples: dict[str, Rows]) -> tuple[str, str]:
    """Return the separator, and the rival to name if rows differ in length."""
    fitting = [each for each, rows in samples.items() if _alike(rows) == 1]
    if _COMMA in fitting:
        return next((each for each in fitting[1:] if _commas_are_decimal(samples[each])), _COMMA), ""
    nearly = max(samples, key=lambda each: _alike(samples[each]))
    if _alike(samples[nearly]) > _MOST_ROWS:
        return nearly, ""
    usual = next(iter(samples))
    return usual, _rival(samples, usual)


def _alike(rows: Rows) -> float:
    """Return the share of the rows with as many cells as the first one, if it has several."""
    if not rows or len(rows[0]) < 2:
        return 0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)


def _commas_are_decimal(rows: Rows) -> bool:
    with_comma = [cell for row in rows for cell in row if _COMMA in cell]
    return bool(with_comma) and all(map(_DECIMAL.fullmatch, with_comma))


def _rival(samples: dict[str, Rows], usual: str) -> str:
    """Return the separator that divides the first row into the most cells, and into more than the usual one."""
    cells = {each: len(rows[0]) for each, rows in samples.items() if rows}
    best = max(cells, key=lambda each: cells[each], default=usual)
    return best if cells.get(best, 0) > cells.get(usual, 0) else ""


# --- The names -------------------------------------------------------------------------------------------------------
def _is_header(first: Sequence[str], below: Rows, separator: str) -> bool:
    if any(_is_number(cell, separator) for cell in first):
        return False
    plain = all(cell.strip() for cell in first) and len(set(first)) == len(first)
    return plain or any(_are_numbers(column, separator) for column in _columns(below, len(first)))


def _comment_names(preamble: bytes, separator: str, first: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the last line of comments, if it has them."""
    lines = preamble.removeprefix(_MARK).decode(errors="replace").splitlines()
    comment = next((line for line in reversed(lines) if line), "")
    if not comment or len(first) < 2:
        return ()
    text = comment.removeprefix("#")
    cells = next(iter(_sample(text.strip(), separator)), [])
    names = tuple(cell.strip() for cell in cells)
    if len(names) != len(first) or not _is_header(names, [], separator):
        return ()
    holds_numbers = any(_is_number(cell, separator) for cell in first)
    return names if holds_numbers or not text[:1].isspace() else ()


def _unique(names: Sequence[str]) -> Iterator[str]:
    taken = set(names)
    seen: set[str] = set()
    for place, name in enumerate(names, 1):
        plain = name if name.strip() else f"column {place}"
        candidate, count = plain, 0
        while candidate in seen or (candidate != name and candidate in taken):
            count += 1
            candidate = f"{plain}.{count}"
        seen.add(candidate)
        yield candidate


def _columns(rows: Rows, count: int) -> Iterator[list[str]]:
    whole = [row for row in rows if len(row) == count]
    return ([row[place] for row in whole] for place in range(count))


def _decimals(rows: Rows, separator: str) -> frozenset[int]:
    if separator != _SEMICOLON or not rows:
        return frozenset()
    columns = enumerate(_columns(rows, len(rows[0])))
    return frozenset(
        place for place, cells in columns if any(_COMMA in cell for cell in cells) and _are_numbers(cells, separator)
    )


def _are_numbers(cells: Sequence[str], separator: str) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and all(_is_number(cell, separator) for cell in filled)


def _is_number(cell: str, separator: str) -> bool:
    try:
        float(with_point(cell) if separator == _SEMICOLON else cell)
    except ValueError:
        return False
    return True
