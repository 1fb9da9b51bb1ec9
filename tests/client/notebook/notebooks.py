"""Cells that have run, without a kernel: the source is known to Python as in IPython."""

from __future__ import annotations

import linecache
from typing import Any

from regatta.notebook.sources import Cells


def ran(*texts: str, **values: Any) -> Cells:
    """Run cells one after another and return them. ``values`` are in the namespace before the first."""
    namespace: dict[str, Any] = {"__name__": "__main__", **values}
    labels: dict[str, str] = {}
    for number, text in enumerate(texts, start=1):
        file = f"<cell {number} of {id(namespace)}>"
        labels[file] = f"Cell In[{number}]"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return Cells(namespace, list(zip(labels.values(), texts, strict=True)), labels.__getitem__)
