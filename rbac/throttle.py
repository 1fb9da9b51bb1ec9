"""How often one address may cause something, such as a letter. Guessing passwords is django-axes' matter: it counts by
name *and* address, so that nobody can lock out all who sit behind one proxy, nor one person from everywhere else."""

from __future__ import annotations

import hashlib

from django.core.cache import cache

from portal.common.errors import TooManyRequests

HOUR = 3600.0


def take(kind: str, who: str, *, most: int, seconds: float = HOUR) -> None:
    """Count one more of ``kind`` for ``who``. Raises TooManyRequests where there were ``most`` of them in the window of
    so many seconds, which begins with the first."""
    digest = hashlib.sha256(f"{kind}\0{who}".encode()).hexdigest()
    key = f"throttle:{digest}"
    if cache.add(key, 1, timeout=seconds):
        return
    try:
        count = cache.incr(key)
    except ValueError:  # it ran out in between
        cache.add(key, 1, timeout=seconds)
        return
    if count > most:
        raise TooManyRequests("Too many requests. Wait a little, then try again.", retry_after=seconds)
