"""Merge of recorded outputs into the contents of a notebook (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.notebook.cell_outputs import Output
from runtime.notebook.cell_record import CellRecord

Notebook = dict[str, Any]
# Metadata of the notebook in a page: which log, and up to which number the page has applied it.
KEY = "regatta"


def merge(notebook: Notebook, records: Iterable[CellRecord], outputs: Callable[[CellRecord], list[Output]]) -> None:
    """Put the recorded outputs into the cells that they belong to."""
    cells = {cell.get("id"): cell for cell in notebook["cells"]}
    for record in records:
        cell = cells.get(record.cell)
        if cell is None or cell["cell_type"] != "code":
            continue
        cell["outputs"] = outputs(record)
        cell["execution_count"] = record.count
        # The person's own kernel made the outputs.
        cell["metadata"]["trusted"] = True


def add_missing(notebook: Notebook, records: Iterable[CellRecord]) -> None:
    """Add cells that were executed and are not in the notebook at its end: nobody saved them before."""
    known = {cell.get("id") for cell in notebook["cells"]}
    for record in records:
        if record.cell not in known:
            cell = {"id": record.cell, "cell_type": "code", "metadata": {}, "source": record.source}
            notebook["cells"].append({**cell, "outputs": [], "execution_count": None})


def cleared(notebook: Mapping[str, Any], records: Iterable[CellRecord], cursor: int) -> list[str]:
    """Return the cells that a person has cleared or deleted in a page that has applied the log up to the cursor.

    Outputs that the page has not applied yet cannot have been cleared there.
    """
    cells = {cell.get("id"): cell for cell in notebook["cells"]}
    return [record.cell for record in records if _is_cleared(cells.get(record.cell), record, cursor)]


def take_cursor(notebook: Notebook, log: str) -> int:
    """Remove and return the page's cursor; 0 if it has none, or one of another log."""
    known = notebook["metadata"].pop(KEY, None)
    if not isinstance(known, dict) or known.get("log") != log or not isinstance(known.get("cursor"), int):
        return 0
    return int(known["cursor"])


def put_cursor(notebook: Notebook, log: str, cursor: int, records: Iterable[CellRecord]) -> None:
    """Add the cursor of the outputs that the notebook contains, and the cells that run."""
    running = [record.cell for record in records if not record.ended]
    notebook["metadata"][KEY] = {"log": log, "cursor": cursor, "running": running}


def digest(notebook: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what people edit. Outputs that the server saves do not change it."""
    cells = [[cell.get("id"), cell["cell_type"], _text(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def _is_cleared(cell: Mapping[str, Any] | None, record: CellRecord, cursor: int) -> bool:
    if cell is None or cell["cell_type"] != "code":
        return cursor >= record.first
    return cursor >= record.last and record.ended and not cell["outputs"] and cell.get("execution_count") is None


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
