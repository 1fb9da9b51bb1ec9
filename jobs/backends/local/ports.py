"""Ports of this machine for the processes of attempts, assigned before they listen so that peers have the addresses.

A port is free if nothing listens on it and no existing attempt has it assigned: the process of that attempt may not
listen yet. The range lies below the kernel's ephemeral ports.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator, Set

from jobs.messages import cluster as messages

HOST = "127.0.0.1"
FIRST, LAST = 10_000, 32_000
TRIES = 2000


class NoPorts(OSError):
    """There are not that many consecutive free ports."""


def choose(count: int, taken: Set[int], rng: random.Random) -> int:
    """Return the first of ``count`` consecutive free ports. Raises NoPorts."""
    for start in _places(count, rng):
        candidates = range(start, start + count)
        if not taken & set(candidates) and all(map(_is_free, candidates)):
            return start
    raise NoPorts(messages.NO_FREE_PORTS(count=count, first=FIRST, last=LAST))


def _places(count: int, rng: random.Random) -> Iterator[int]:
    return (rng.randrange(FIRST, LAST - count) for _ in range(TRIES))


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: connections that have just ended do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
