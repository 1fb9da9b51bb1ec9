"""How large a measurement is made: as the rows say, or small, to see that it works (``python -m bench --quick``).

What a quick run measures says nothing of the platform; it is marked, kept apart and never shown in the documents.
"""

from __future__ import annotations

import os
from typing import TypeVar

QUICK_VARIABLE = "BENCH_QUICK"
T = TypeVar("T")


def is_quick() -> bool:
    return os.environ.get(QUICK_VARIABLE) == "1"


def scale(full: T, quick: T) -> T:
    """``full``, or ``quick`` in a quick run."""
    return quick if is_quick() else full
