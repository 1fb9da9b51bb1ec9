"""Redis clients with the limits of the portal: a call fails within seconds, and is not tried again.

Nothing that Redis holds is needed. The caller of a failed call continues without it, and uses Redis again later.

The library is imported with the first client: that takes a third of a second, which a portal without Redis saves.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from redis import Redis
    from redis import asyncio as redis_asyncio

# Requests wait for some calls.
CONNECT_SECONDS = ANSWER_SECONDS = 1.0
_LIMITS: dict[str, Any] = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}


@functools.cache
def client_of(url: str) -> Redis:
    """Return the client of an address, for all threads of this process."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_LIMITS)


def async_client(url: str) -> redis_asyncio.Redis:
    """Return a new client for the running event loop; the caller closes it."""
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_LIMITS)


def without_password(url: str) -> str:
    """Return the server of an address, for messages: ``HOST:PORT``, or the path of a socket."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path
