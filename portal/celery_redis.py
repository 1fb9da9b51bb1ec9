"""Celery's Redis broker without the return of unacknowledged messages when a connection closes.

kombu puts them back into their queue while it closes the connection. When the connection was lost because Redis is
away, that fails with an error that Celery does not expect, and the worker ends. A message is a hint, and the sweep
repeats the work of a lost one, so nothing has to be put back.
"""

from __future__ import annotations

from kombu.transport import redis


class Channel(redis.Channel):
    """One connection to Redis."""

    do_restore = False


class Transport(redis.Transport):
    """The transport of addresses that begin with ``redis://`` or ``rediss://``."""

    Channel = Channel
