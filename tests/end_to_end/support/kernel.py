"""Notebooks executed by a kernel of Jupyter that is signed in to a running portal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.end_to_end.support.portal import ROOT, RunningPortal

CELL_SECONDS = 240


def execute(notebook: Any, portal: RunningPortal, folder: Path) -> Any:
    """Run all cells with ``folder`` as the current one. Raises CellExecutionError for a cell that fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    # The kernel sees the client as installed, and nothing else of the repository.
    environment = {**kept, "PYTHONPATH": str(ROOT / "client"), "XDG_CACHE_HOME": str(folder / "cache")}
    environment |= {"REGATTA_SERVER": portal.address, "REGATTA_TOKEN": portal.token()}
    environment |= {"XDG_CONFIG_HOME": str(folder), "IPYTHONDIR": str(folder / "ipython"), "MPLCONFIGDIR": str(folder)}
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)
    return notebook


def of_cells(*cells: str) -> Any:
    """Return a notebook with these code cells. One that fails does not end the others."""
    made = [nbformat.v4.new_code_cell(text, metadata={"tags": ["raises-exception"]}) for text in cells]
    return nbformat.v4.new_notebook(cells=made)


def text_of(cell: Any) -> str:
    """Return everything that the output of a cell says as text."""
    found: list[str] = []
    for output in cell.outputs:
        match output.output_type:
            case "stream":
                found.append(output.text)
            case "error":
                found += output.traceback
            case _:
                found.append(output.data.get("text/plain", ""))
    return "\n".join(found)


def types_of(cell: Any) -> set[str]:
    """Return the media types of the outputs of a cell."""
    return {name for output in cell.outputs for name in output.get("data", ())}
