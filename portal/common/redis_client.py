"""Redis clients with the limits of the portal: a call fails within seconds, and is not tried again.

Nothing that Redis holds is needed. The caller of a failed call continues without it, and uses Redis again later.
"""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis import asyncio as redis_asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

# Requests wait for some calls.
CONNECT_SECONDS = ANSWER_SECONDS = 1.0
_LIMITS: dict[str, Any] = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}


@functools.cache
def client_of(url: str) -> Redis:
    """Return the client of an address, for all threads of this process."""
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_LIMITS)


def async_client(url: str) -> redis_asyncio.Redis:
    """Return a new client for the running event loop; the caller closes it."""
    return redis_asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **_LIMITS)


def without_password(url: str) -> str:
    """Return the server of an address, for messages: ``HOST:PORT``, or the path of a socket."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
