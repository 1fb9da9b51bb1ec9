"""The assignment of numbers to servers. Pure.

Parameters are cut into blocks of 1 MiB; blocks, and rows of tables, are hashed to slots; slots belong to servers. With
these two steps, a change of the number of servers is a change of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.messages import training as messages

Array = NDArray[Any]

BLOCK_BYTES = 1 << 20
SLOTS = 1024

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash of the UTF-8 bytes of ``text`` (Fowler, Noll, Vo)."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def slot_of(name: str, block: int) -> int:
    """The slot of block number ``block`` of the parameter ``name``."""
    return fnv1a(f"{name}:{block}") % SLOTS


def even_table(servers: int) -> tuple[int, ...]:
    """Return the server of every slot, as evenly as whole numbers allow."""
    if not 1 <= servers <= SLOTS:
        raise ValueError(messages.PSERVER_COUNT_INVALID(most=SLOTS, count=servers))
    return tuple(slot * servers // SLOTS for slot in range(SLOTS))


def spans(elements: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """The half-open range of elements of each block, in order."""
    step = BLOCK_BYTES // itemsize
    return ((start, min(start + step, elements)) for start in range(0, elements, step))


def server_of(name: str, block: int, table: Sequence[int]) -> int:
    return table[slot_of(name, block)]


def slots_of_rows(name: str, ids: Array) -> Array:
    """The slot (n,) of each row of the table ``name``; ``ids`` (n,) are int64."""
    words = mix(ids.astype("i8").view("u8") ^ np.uint64(fnv1a(name)))
    return (words % np.uint64(SLOTS)).astype("i8")


def servers_of_rows(name: str, ids: Array, table: Sequence[int]) -> Array:
    """The server (n,) of each row."""
    servers: Array = np.asarray(table)[slots_of_rows(name, ids)]
    return servers


def mix(words: Array) -> Array:
    """Scramble each 64-bit word so that every bit of it changes half of the result's: the finaliser of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
