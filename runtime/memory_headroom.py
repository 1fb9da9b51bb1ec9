"""Memory that this process may still allocate before the system or its agent refuses it."""

from __future__ import annotations

import math
import resource
from pathlib import Path

_STATISTICS = Path("/proc/self/statm")
# Field of the pages of data and stack, which RLIMIT_DATA counts.
_DATA_FIELD = 5


def headroom() -> float:
    """Return the bytes left of the process's data limit; infinite without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit == resource.RLIM_INFINITY:
        return math.inf
    pages = int(_STATISTICS.read_text().split()[_DATA_FIELD])
    return limit - pages * resource.getpagesize()
