"""Early return of connections to the pool, before a request waits for its client."""

from __future__ import annotations

from django.db import connections


def return_connections() -> None:
    """Return the connections of this thread that are in no transaction. Its next query takes one again.

    Slow uploads and downloads would otherwise hold all connections of the process. Without a pool they are kept: to
    open one for each piece of a body costs more.
    """
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict.get("POOL_SIZE") and not connection.in_atomic_block:
            connection.close()
