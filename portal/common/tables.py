"""CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any

# A spreadsheet takes a cell that begins with one of these for a formula, also after a separator at which it splits.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Line:
    """A file that returns the text written to it, so that ``csv`` makes one line at a time."""

    def write(self, text: str) -> str:
        return text


_writer: Any = csv.writer(_Line())


def csv_line(cells: Iterable[Any]) -> str:
    """Return one line. Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    line: str = _writer.writerow([_inert(cell) for cell in cells])
    return line


def _inert(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
