"""Readiness of a web process while its database cannot be reached. Pure: times are those of a monotonic clock.

All web processes lose the database at the same moment. If each became unready at once, the load balancer would have
none left, and its own error page would replace the 503 of the portal. So a process stays ready for a while. A process
that has not reached the database since its start is not ready: it may have a wrong address.
"""

from __future__ import annotations

import math

# The database was not reached yet.
NEVER = -math.inf


def lost_since(before: float | None, answers: bool, now: float) -> float | None:
    """Return since when the database does not answer, after one more look; None while it answers."""
    if answers:
        return None
    return now if before is None else before


def ready(since: float | None, now: float, tolerance: float) -> bool:
    """Return whether a process is ready whose database does not answer since then. ``tolerance`` is in seconds."""
    return since is None or now - since < tolerance
