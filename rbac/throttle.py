"""Rate limits for actions such as sending an e-mail or submitting a job.

django-axes limits password guessing. It counts by name *and* address, so that nobody can lock out all callers behind
one proxy, nor one person from everywhere else.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import math
from datetime import timedelta

from django.conf import settings
from django.core.cache import cache

from portal.common.errors import TooManyRequests
from portal.common.request_counters import Counters, ProcessCounters, shared_counters
from rbac import messages

HOUR = 3600.0
_IPV6_PREFIX = 64


def take(kind: str, subject: str, *, most: int, seconds: float = HOUR) -> None:
    """Count one more of ``kind`` for ``subject``. The window of ``seconds`` begins with the first one.

    Raises TooManyRequests after ``most`` of them in the window; the error holds the rest of the window.
    """
    digest = hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()
    count, left = _counters_of(settings.REDIS_URL).count(digest, seconds)
    if count > most:
        raise TooManyRequests(messages.TOO_MANY_REQUESTS_FOR_NOW(seconds=math.ceil(left)), retry_after=math.ceil(left))


def refund(kind: str, subject: str) -> None:
    """Undo one ``take``: it was counted before it was clear that it should not count."""
    digest = hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()
    _counters_of(settings.REDIS_URL).uncount(digest)


def network_of(address: str | None) -> str:
    """Return the throttle subject of an address: the IPv4 address, or the /64 of an IPv6 address, because one machine
    has all of that."""
    if address is None:
        return ""
    found = ipaddress.ip_address(address)
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, _IPV6_PREFIX), strict=False).network_address)


@functools.cache
def _counters_of(redis_url: str) -> Counters:
    """Return the counters of this process, or those of all processes that have the Redis."""
    own = ProcessCounters(cache)
    return shared_counters(redis_url, own) if redis_url else own


def take_of(kind: str, subject: str, rate: tuple[int, timedelta]) -> None:
    """Count one more by a rate as in the settings: a count and its period."""
    most, window = rate
    take(kind, subject, most=most, seconds=window.total_seconds())
