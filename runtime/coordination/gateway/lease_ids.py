"""Ids of leases that name their owner and their time to live: a keyed hash, the seconds, and random bits. Pure.

All replicas of the gateway share the key, so that each of them recognizes the leases that another one granted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

# etcd's ids are positive numbers of 63 bits.
_RANDOM_BITS = 19
_SECONDS_BITS = 12
_HASH_BITS = 32
MOST_SECONDS = (1 << _SECONDS_BITS) - 1
# Ids of releases whose leases etcd ended by itself: 39 bits of a hash and 24 random bits.
_FORMER_HASH_BITS, _FORMER_RANDOM_BITS = 39, 24


class LeaseIds:
    """Chooses ids of leases, and checks whether an id belongs to an account."""

    def __init__(self, key: bytes, draw: Callable[[int], int] = secrets.randbits) -> None:
        self._key = key
        self._draw = draw

    def choose(self, account: str, seconds: int) -> int:
        """Return an id for a new lease of the account with this time to live in seconds, at most ``MOST_SECONDS``.

        etcd refuses the rare id that is in use.
        """
        return self._id(account, seconds << _RANDOM_BITS | self._draw(_RANDOM_BITS))

    def belongs(self, lease: int, account: str) -> bool:
        return lease > 0 and (self._is_own(lease, account) or self._is_former(lease, account))

    def seconds(self, lease: int, account: str) -> int | None:
        """Return the time to live that the lease of the account was granted with. None: etcd ends it by itself."""
        return (lease >> _RANDOM_BITS) & MOST_SECONDS if self._is_own(lease, account) else None

    def _is_own(self, lease: int, account: str) -> bool:
        return self._id(account, lease % (1 << (_SECONDS_BITS + _RANDOM_BITS))) == lease

    def _id(self, account: str, rest: int) -> int:
        return self._hash(f"{account}/{rest}/seconds", _HASH_BITS) << (_SECONDS_BITS + _RANDOM_BITS) | rest

    def _is_former(self, lease: int, account: str) -> bool:
        drawn = lease % (1 << _FORMER_RANDOM_BITS)
        return self._hash(f"{account}/{drawn}", _FORMER_HASH_BITS) << _FORMER_RANDOM_BITS | drawn == lease

    def _hash(self, text: str, bits: int) -> int:
        digest = hmac.digest(self._key, text.encode(), hashlib.sha256)
        return int.from_bytes(digest[:8], "big") >> (64 - bits)
