"""Counters of requests in windows of time: of this process, of all processes in Redis, and of Redis with the process's
own as the replacement during an outage. ``rbac.throttle`` makes limits of them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from django.core.cache.backends.base import BaseCache

from portal.common.clock import now as wall_clock
from portal.common.redis_client import client_of, without_password

_log = logging.getLogger(__name__)

# Seconds for which a process does not use counters that did not answer.
AWAY_SECONDS = 5.0


class Counters(Protocol):
    """Contract: ``tests/contracts/counters_contract.py``."""

    def count(self, key: str, seconds: float) -> tuple[int, float]:
        """Count one more; return the count in the window, and how many seconds of the window are left.

        The window of ``seconds`` begins with the first one.
        """

    def uncount(self, key: str) -> None:
        """Decrease the count if its window has not ended."""


class ProcessCounters:
    """Counters in a cache of this process."""

    def __init__(self, cache: BaseCache, clock: Callable[[], float] = lambda: wall_clock().timestamp()) -> None:
        self._cache, self._clock = cache, clock

    def count(self, key: str, seconds: float) -> tuple[int, float]:
        count_key, end_key = f"throttle:{key}", f"throttle-end:{key}"
        now = self._clock()
        if self._cache.add(count_key, 1, timeout=seconds):
            self._cache.set(end_key, now + seconds, timeout=seconds)
            return 1, seconds
        try:
            count = self._cache.incr(count_key)
        except ValueError:  # it expired in between
            self._cache.add(count_key, 1, timeout=seconds)
            return 1, seconds
        return count, max(1.0, self._cache.get(end_key, now + seconds) - now)

    def uncount(self, key: str) -> None:
        try:
            self._cache.decr(f"throttle:{key}")
        except ValueError:
            return  # the window has ended


class RedisCounters:
    """Counters in a Redis, by its clock. Raises what the client raises; a call takes at most two seconds."""

    # One script, because a window that ends between two commands would leave a counter that never expires.
    _COUNT = """
        if redis.call('SET', KEYS[1], 1, 'NX', 'PX', ARGV[1]) then return {1, tonumber(ARGV[1])} end
        return {redis.call('INCR', KEYS[1]), redis.call('PTTL', KEYS[1])}
    """
    _UNCOUNT = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('DECR', KEYS[1]) end"

    def __init__(self, url: str) -> None:
        client = client_of(url)
        self._count, self._uncount = client.register_script(self._COUNT), client.register_script(self._UNCOUNT)

    def count(self, key: str, seconds: float) -> tuple[int, float]:
        count, left = self._count([f"regatta:throttle:{key}"], [max(1, round(seconds * 1000))])
        return int(count), max(1.0, left / 1000)

    def uncount(self, key: str) -> None:
        self._uncount([f"regatta:throttle:{key}"])


class ReplacedCounters:
    """Shared counters, replaced by this process's own for ``AWAY_SECONDS`` after each failure.

    Limits then hold per process, and no request fails because of them. During an outage one request at a time tries
    the shared counters, so others do not wait for an answer.
    """

    def __init__(
        self, shared: Counters, own: Counters, server: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared, self._own, self._server, self._clock = shared, own, server, clock
        self._lock = threading.Lock()
        self._away_until = -math.inf  # finite: during an outage

    def count(self, key: str, seconds: float) -> tuple[int, float]:
        if self._may_try():
            try:
                found = self._shared.count(key, seconds)
            except Exception as error:  # noqa: BLE001  Redis fails in many ways, and recovers
                self._note(error)
            else:
                self._note(None)
                return found
        return self._own.count(key, seconds)

    def uncount(self, key: str) -> None:
        """As for all counters; when it fails, one too many is counted."""
        if not self._may_try():
            self._own.uncount(key)
            return
        try:
            self._shared.uncount(key)
        except Exception as error:  # noqa: BLE001  as in ``count``
            self._note(error)

    def _may_try(self) -> bool:
        with self._lock:
            if self._away_until == -math.inf:
                return True
            if self._clock() < self._away_until:
                return False
            self._away_until = self._clock() + AWAY_SECONDS
            return True

    def _note(self, error: Exception | None) -> None:
        with self._lock:
            was_away = self._away_until > -math.inf
            self._away_until = -math.inf if error is None else self._clock() + AWAY_SECONDS
        if error is not None and not was_away:
            _log.warning("Redis at %s cannot be used; each process counts requests for itself: %s", self._server, error)
        elif error is None and was_away:
            _log.warning("Redis at %s counts requests again.", self._server)


def shared_counters(url: str, own: Counters) -> Counters:
    """Return the counters of all processes that have this Redis, replaced by ``own`` while it cannot be used."""
    return ReplacedCounters(RedisCounters(url), own, without_password(url))
