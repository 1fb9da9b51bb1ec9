"""Cells of the notebook around this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regatta.notebook.sources import Cells
from regatta.watching import kernel


def cells(namespace: Mapping[str, Any]) -> Cells:
    """Return the cells that have run; without a notebook, the code of ``namespace`` alone."""
    shell = kernel.shell()
    if shell is None:
        return Cells(namespace)
    texts = [(f"Cell In[{number}]", text) for number, text in enumerate(shell.history_manager.input_hist_parsed)]
    return Cells(namespace, texts, kernel.label)
