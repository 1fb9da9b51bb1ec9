"""Where a block lives: parameters are cut into blocks of 1 MiB, blocks are hashed to slots, slots belong to servers.

The two steps make a resize of the servers a change of the table. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """The server of every slot, as evenly as whole numbers allow."""
    if not 1 <= servers <= SLOTS:
        raise ValueError(f"Between 1 and {SLOTS} parameter servers can share the parameters, not {servers}.")
    return tuple(slot * servers // SLOTS for slot in range(SLOTS))


def spans(elements: int, itemsize: int) -> Iterator[tuple[int, int]]:
    """The half-open range of elements of each block, in order."""
    step = BLOCK_BYTES // itemsize
    return ((start, min(start + step, elements)) for start in range(0, elements, step))


def server_of(name: str, block: int, table: Sequence[int]) -> int:
    return table[slot_of(name, block)]
