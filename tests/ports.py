"""Ports of the loopback for the servers of tests."""

from __future__ import annotations

import random
import socket

# Below those that Linux gives to outgoing connections: such a one could take the port before the server has begun.
_RANGE = (15_000, 32_000)


def free_port() -> int:
    """One that nobody listens on. Raises OSError where a hundred tries find none."""
    for _ in range(99):
        try:
            return _bound(random.SystemRandom().randrange(*_RANGE))
        except OSError:
            continue
    return _bound(random.SystemRandom().randrange(*_RANGE))


def _bound(port: int) -> int:
    with socket.create_server(("127.0.0.1", port)):
        return port
