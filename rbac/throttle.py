"""Rate limits for actions such as sending an e-mail or submitting a job.

django-axes limits password guessing. It counts by name *and* address, so that nobody can lock out all callers behind
one proxy, nor one person from everywhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import logging
import math
import time
from datetime import timedelta

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache

from portal.common.clock import now as wall_clock
from portal.common.errors import TooManyRequests
from rbac import messages

_log = logging.getLogger(__name__)

HOUR = 3600.0
_IPV6_PREFIX = 64
# Seconds for which a process does not retry counters that did not answer.
_AWAY_SECONDS = 5.0


def take(kind: str, subject: str, *, most: int, seconds: float = HOUR) -> None:
    """Count one more of ``kind`` for ``subject``. The window of ``seconds`` begins with the first one.

    Raises TooManyRequests after ``most`` of them in the window; the error holds the rest of the window.
    """
    digest = hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()
    count, left = _shared.count(digest, seconds)
    if count > most:
        raise TooManyRequests(messages.TOO_MANY_REQUESTS_FOR_NOW(seconds=math.ceil(left)), retry_after=math.ceil(left))


def refund(kind: str, subject: str) -> None:
    """Undo one ``take``: it was counted before it was clear that it should not count."""
    _shared.uncount(hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest())


def network_of(address: str | None) -> str:
    """Return the throttle subject of an address: the IPv4 address, or the /64 of an IPv6 address, because one machine
    has all of that."""
    if address is None:
        return ""
    found = ipaddress.ip_address(address)
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, _IPV6_PREFIX), strict=False).network_address)


class _Shared:
    """The counters of all web processes. While they are unavailable, each process counts by itself: the limits then
    hold per process, and no request fails because of them."""

    def __init__(self) -> None:
        self._away_until = -math.inf

    def count(self, digest: str, seconds: float) -> tuple[int, float]:
        """Count one more; return the count in the window, and how many seconds of the window are left."""
        if time.monotonic() >= self._away_until:
            try:
                return _count(caches["default"], digest, seconds)
            except Exception as error:  # noqa: BLE001  Redis fails in many ways, and recovers
                self._away_until = time.monotonic() + _AWAY_SECONDS
                _log.warning("The shared counters of requests do not answer; each process counts by itself: %s", error)
        return _count(caches["own"], digest, seconds)

    def uncount(self, digest: str) -> None:
        """Decrease the count, when it still exists."""
        counters = caches["default"] if time.monotonic() >= self._away_until else caches["own"]
        with contextlib.suppress(Exception):  # as for ``count``; at worst one too many is counted
            counters.decr(f"throttle:{digest}")


def _count(counters: BaseCache, digest: str, seconds: float) -> tuple[int, float]:
    key, end_key = f"throttle:{digest}", f"throttle-end:{digest}"
    now = wall_clock().timestamp()
    if counters.add(key, 1, timeout=seconds):
        counters.set(end_key, now + seconds, timeout=seconds)
        return 1, seconds
    try:
        count = counters.incr(key)
    except ValueError:  # it expired in between
        counters.add(key, 1, timeout=seconds)
        return 1, seconds
    return count, max(1.0, counters.get(end_key, now + seconds) - now)


_shared = _Shared()


def take_of(kind: str, subject: str, rate: tuple[int, timedelta]) -> None:
    """Count one more by a rate as in the settings: a count and its period."""
    most, window = rate
    take(kind, subject, most=most, seconds=window.total_seconds())
