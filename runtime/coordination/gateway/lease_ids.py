"""Ids of leases that name their owner: a keyed hash of the account, and random bits. Pure.

All replicas of the gateway share the key, so that each of them recognizes the leases that another one granted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

# etcd's ids are positive numbers of 63 bits.
_RANDOM_BITS = 24
_HASH_BITS = 39


class LeaseIds:
    """Chooses ids of leases, and checks whether an id belongs to an account."""

    def __init__(self, key: bytes, draw: Callable[[int], int] = secrets.randbits) -> None:
        self._key = key
        self._draw = draw

    def choose(self, account: str) -> int:
        """Return an id for a new lease of the account. etcd refuses the rare one that is in use."""
        return self._id(account, self._draw(_RANDOM_BITS))

    def belongs(self, lease: int, account: str) -> bool:
        return lease > 0 and self._id(account, lease % (1 << _RANDOM_BITS)) == lease

    def _id(self, account: str, drawn: int) -> int:
        digest = hmac.digest(self._key, f"{account}/{drawn}".encode(), hashlib.sha256)
        return (int.from_bytes(digest[:8], "big") >> (64 - _HASH_BITS)) << _RANDOM_BITS | drawn
