"""Kernel of a notebook around this process, if there is one."""

from __future__ import annotations

import sys
from typing import Any


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


def label(file: str) -> str:
    """Return the name of the cell that Python knows as this file, or the name of the file."""
    here = shell()
    named = here.compile.format_code_name(file) if here is not None else None
    return " ".join(named) if named else file.rpartition("/")[2]
