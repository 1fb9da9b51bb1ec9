"""Notebook around this process, if there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from regatta.notebook.sources import Cells


def shell() -> Any:
    """Return the shell of IPython, or None in a plain program."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def in_kernel() -> bool:
    """Return whether outputs can be replaced: in a kernel, and not in a terminal."""
    return getattr(shell(), "kernel", None) is not None


def cell_label() -> str:
    """Return the name of the cell that runs, as IPython's tracebacks have it."""
    return f"Cell In[{len(shell().history_manager.input_hist_parsed) - 1}]"


def cells(namespace: Mapping[str, Any]) -> Cells:
    """Return the cells that have run; without a notebook, the code of ``namespace`` alone."""
    here = shell()
    if here is None:
        return Cells(namespace)
    texts = [(f"Cell In[{number}]", text) for number, text in enumerate(here.history_manager.input_hist_parsed)]

    def label(file: str) -> str:
        named = here.compile.format_code_name(file)
        return " ".join(named) if named else file.rpartition("/")[2]

    return Cells(namespace, texts, label)
