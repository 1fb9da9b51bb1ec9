"""How often somebody may cause something, such as a letter or a job.

Guessing passwords is django-axes' matter: it counts by name *and* address, so that nobody can lock out all who sit
behind one proxy, nor one person from everywhere else.
"""

from __future__ import annotations

import hashlib
import math
from datetime import timedelta

from django.core.cache import cache

from portal.common.errors import TooManyRequests
from portal.common.time import now as wall_clock

HOUR = 3600.0
_TOO_MANY = "Too many requests. Wait {seconds} s, then try again."


def take(kind: str, who: str, *, most: int, seconds: float = HOUR) -> None:
    """Count one more of ``kind`` for ``who``. Raises TooManyRequests where there were ``most`` of them in the window of
    so many seconds, which begins with the first; it tells how much of the window is left."""
    digest = hashlib.sha256(f"{kind}\0{who}".encode()).hexdigest()
    key, end_key = f"throttle:{digest}", f"throttle-end:{digest}"
    now = wall_clock().timestamp()
    if cache.add(key, 1, timeout=seconds):
        cache.set(end_key, now + seconds, timeout=seconds)
        return
    try:
        count = cache.incr(key)
    except ValueError:  # it ran out in between
        cache.add(key, 1, timeout=seconds)
        return
    if count > most:
        left = max(1.0, cache.get(end_key, now + seconds) - now)
        raise TooManyRequests(_TOO_MANY.format(seconds=math.ceil(left)), retry_after=math.ceil(left))


def take_of(kind: str, who: str, rate: tuple[int, timedelta]) -> None:
    """The same by a rate as settings have it: how many in which time."""
    most, window = rate
    take(kind, who, most=most, seconds=window.total_seconds())
