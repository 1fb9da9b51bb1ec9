"""Ports of this machine for the processes of attempts, so that the others know where each will listen.

A port is free when nothing listens there, and no attempt that is still here was given it: its process may not have
come to it yet. They lie below those that the kernel gives to whoever asks for any.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator, Set

HOST = "127.0.0.1"
FIRST, LAST = 10_000, 32_000
TRIES = 2000


class NoPorts(OSError):
    """There is no room for so many ports in a row."""


def choose(count: int, taken: Set[int], rng: random.Random) -> int:
    """The first of ``count`` free ports in a row. Raises NoPorts."""
    for start in _places(count, rng):
        candidates = range(start, start + count)
        if not taken & set(candidates) and all(map(_is_free, candidates)):
            return start
    raise NoPorts(f"there are no {count} free ports in a row from {FIRST} to {LAST} on this machine")


def _places(count: int, rng: random.Random) -> Iterator[int]:
    return (rng.randrange(FIRST, LAST - count) for _ in range(TRIES))


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: connections that have just ended are not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
