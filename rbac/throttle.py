"""Failed sign-ins are counted by account name *and* address: guessing is slow, and nobody can lock out all who sit
behind one proxy, nor one person from everywhere else. A success clears the count."""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core.cache import cache

from portal.common.errors import TooManyRequests

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _rate() -> tuple[int, int]:
    """How many failures in how many seconds."""
    rate: str = settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]["sign-in"]
    failures, _, unit = rate.partition("/")
    return int(failures), _SECONDS[unit[:1]]


def _key(username: str, address: str) -> str:
    digest = hashlib.sha256(f"{username}\0{address}".encode()).hexdigest()
    return f"sign-in-failures:{digest}"


def check(username: str, address: str) -> None:
    """Raises TooManyRequests after too many failures from this address for this name."""
    failures, seconds = _rate()
    if cache.get(_key(username, address), 0) >= failures:
        raise TooManyRequests("Too many attempts to sign in. Wait a minute, then try again.", retry_after=seconds)


def note_failure(username: str, address: str) -> None:
    """Count one failure; the window begins with the first."""
    key = _key(username, address)
    if not cache.add(key, 1, timeout=_rate()[1]):
        try:
            cache.incr(key)
        except ValueError:  # it ran out in between
            cache.add(key, 1, timeout=_rate()[1])


def clear(username: str, address: str) -> None:
    cache.delete(_key(username, address))
