"""CRC-32 and CRC-32C of large pieces of data.

CRC-32 (IEEE 802.3) is zlib's, or ISA-L's if the package ``isal`` is installed: the same value, several times as fast.
CRC-32C (Castagnoli) is in neither the standard library nor NumPy: ``google-crc32c`` computes it if it is installed,
else NumPy does, on many bytes in parallel (RFC 3720, appendix B.4 has the values that the tests compare with).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from runtime.data.optional_imports import find

Bytes = bytes | bytearray | memoryview
Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
# Below this many bytes the set-up of arrays costs more than it saves. Above it, a lane has this many.
_LANE_BYTES = 256
# Pieces up to this length are computed in parallel, one lane each. Longer ones are divided into lanes of their own.
_LONG_BYTES = 4096

_isal: ModuleType | None = find("isal.isal_zlib")
_google: ModuleType | None = find("google_crc32c")

crc32: Callable[..., int] = _isal.crc32 if _isal else zlib.crc32


def crc32c(data: Bytes) -> int:
    """Return the CRC-32C of ``data``."""
    if _google is not None:
        return int(_google.value(bytes(data)))
    return _crc32c(data)


def masked(crc: int) -> int:
    """Return a CRC-32C as TFRecord and snappy's frames store it: rotated, so that data may contain checksums safely."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


def crc32c_of_each(data: Bytes, begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the CRC-32C of each piece ``data[begin:end]``."""
    if _google is not None:
        value, view = _google.value, memoryview(data)
        return [value(bytes(view[begin:end])) for begin, end in zip(begins, ends, strict=True)]
    if any(end - begin > _LONG_BYTES for begin, end in zip(begins, ends, strict=True)):
        view = memoryview(data)
        return [_crc32c(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return _abreast(np.frombuffer(data, np.uint8), np.asarray(begins, np.int64), np.asarray(ends, np.int64))


# --- NumPy -----------------------------------------------------------------------------------------------------------
def _crc32c(data: Bytes) -> int:
    """Return the CRC-32C, computed on equal lanes in parallel, whose registers are then joined in pairs.

    Zeros in front do not change a register that begins with 0, so the data is padded there. The initial value of the
    register is shifted past all of the data at the end.
    """
    lanes = 1 << max(0, (len(data) // _LANE_BYTES).bit_length() - 1)
    length = -(-len(data) // lanes)
    rows = np.zeros((lanes, length), np.uint8)
    rows.reshape(-1)[lanes * length - len(data) :] = np.frombuffer(data, np.uint8)
    registers = np.zeros(lanes, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        registers = _step(registers, column)
    while len(registers) > 1:
        registers = _shift(registers[0::2], length) ^ registers[1::2]
        length *= 2
    first = _shift(np.array([_ALL], np.uint32), len(data))
    return int(registers[0] ^ first[0]) ^ _ALL


def _abreast(data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """Return the CRC-32C of each piece, one lane each, the longest first.

    Each step takes one byte of every piece that is long enough.
    """
    lengths = ends - begins
    order = np.argsort(-lengths, kind="stable")
    registers = np.full(len(order), _ALL, np.uint32)
    ends, left = ends[order], lengths[order]
    for distance in range(int(left[0]) if len(left) else 0, 0, -1):
        active = int(np.searchsorted(-left, -distance, side="right"))
        registers[:active] = _step(registers[:active], data[ends[:active] - distance])
    found = np.empty_like(registers)
    found[order] = registers ^ np.uint32(_ALL)
    return [int(crc) for crc in found]


def _step(registers: Words, column: NDArray[np.uint8]) -> Words:
    """Return all registers after one more byte each."""
    moved: Words = _table()[(registers ^ column) & np.uint32(0xFF)] ^ (registers >> np.uint32(8))
    return moved


def _shift(registers: Words, zeros: int) -> Words:
    """Return all registers after ``zeros`` bytes of 0."""
    power = 0
    while zeros:
        if zeros & 1:
            registers = _apply(_zeros(power), registers)
        zeros >>= 1
        power += 1
    return registers


def _apply(tables: Words, registers: Words) -> Words:
    """Apply a linear map of 32 bits, given by its result for each value of each of the four bytes."""
    parts = (tables[byte][(registers >> np.uint32(8 * byte)) & 0xFF] for byte in range(4))
    first, second, third, fourth = parts
    joined: Words = first ^ second ^ third ^ fourth
    return joined


@lru_cache(maxsize=1)
def _table() -> Words:
    table: Words = np.arange(256, dtype=np.uint32)
    for _bit in range(8):
        table = (table >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (table & np.uint32(1)))
    return table


@lru_cache(maxsize=64)
def _zeros(power: int) -> Words:
    """Return the map of 2**power bytes of 0: the map of half as many, applied twice."""
    values = np.arange(256, dtype=np.uint32)
    columns = [values << np.uint32(8 * byte) for byte in range(4)]
    if power == 0:
        nothing = np.zeros(256, np.uint8)
        return np.stack([_step(column, nothing) for column in columns])
    half = _zeros(power - 1)
    return np.stack([_apply(half, _apply(half, column)) for column in columns])
