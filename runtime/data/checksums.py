"""CRC-32 and CRC-32C of large pieces of data.

CRC-32 (IEEE 802.3) is zlib's, or ISA-L's if the package ``isal`` is installed: the same value, several times as fast.
CRC-32C (Castagnoli) is in neither the standard library nor NumPy; ``google-crc32c`` computes it. An environment of
a job may lack the package; the functions then raise UsageError, which names it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from types import ModuleType

from runtime.data.optional_imports import find, need

Bytes = bytes | bytearray | memoryview

_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8

_isal: ModuleType | None = find("isal.isal_zlib")
_google: ModuleType | None = find("google_crc32c")

crc32: Callable[..., int] = _isal.crc32 if _isal else zlib.crc32


def has_crc32c() -> bool:
    """Return whether this environment can compute CRC-32C."""
    return _google is not None


def crc32c(data: Bytes) -> int:
    """Return the CRC-32C of ``data``."""
    google = _google or _needed()
    return int(google.value(bytes(data)))


def masked(crc: int) -> int:
    """Return a CRC-32C as TFRecord stores it: rotated, so that data may contain checksums safely."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


def crc32c_of_each(data: Bytes, begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the CRC-32C of each piece ``data[begin:end]``."""
    value, view = (_google or _needed()).value, memoryview(data)
    return [value(bytes(view[begin:end])) for begin, end in zip(begins, ends, strict=True)]


def _needed() -> ModuleType:
    return need("google_crc32c", "google-crc32c", "TFRecord")
