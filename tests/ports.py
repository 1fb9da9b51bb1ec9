"""Loopback ports for the servers of tests."""

from __future__ import annotations

import random
import socket

# Below the range of outgoing connections on Linux: one of those could take the port before the server starts.
_RANGE = (15_000, 32_000)


def free_port() -> int:
    """Return a free port. Raises OSError after a hundred attempts."""
    for _ in range(99):
        try:
            return _bound(random.SystemRandom().randrange(*_RANGE))
        except OSError:
            continue
    return _bound(random.SystemRandom().randrange(*_RANGE))


def _bound(port: int) -> int:
    with socket.create_server(("127.0.0.1", port)):
        return port
