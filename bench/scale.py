"""Size of measurements: full, or small to test that they work (``python -m bench --quick``).

The figures of a quick run are meaningless; they are marked, stored separately and never shown in the documents.
"""

from __future__ import annotations

import os
from typing import TypeVar

QUICK_VARIABLE = "BENCH_QUICK"
T = TypeVar("T")


def is_quick() -> bool:
    return os.environ.get(QUICK_VARIABLE) == "1"


def scale(full: T, quick: T) -> T:
    """Return ``full``, or ``quick`` in a quick run."""
    return quick if is_quick() else full
