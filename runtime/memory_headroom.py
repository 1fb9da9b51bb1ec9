"""How much memory this process may still take before the system or its agent says no."""

from __future__ import annotations

import math
import resource
from pathlib import Path

_STATISTICS = Path("/proc/self/statm")
# Of the pages that are counted there: data and stack.
_DATA_FIELD = 5


def headroom() -> float:
    """Bytes that are left of the process's limit; infinite where it has none."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit == resource.RLIM_INFINITY:
        return math.inf
    pages = int(_STATISTICS.read_text().split()[_DATA_FIELD])
    return limit - pages * resource.getpagesize()
