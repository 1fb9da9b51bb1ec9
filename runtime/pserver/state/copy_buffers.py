"""Memory for the copies of a checkpoint, allocated before it is needed.

The first touch of a page may cost more than copying it. So the thread that writes checkpoints prepares the pages for a
snapshot, not the push that has to copy what it changes. The pages are kept for the next snapshot.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.memory_headroom import headroom

Array = NDArray[Any]
_ALIGNMENT = 64


class Copies:
    """A buffer for copies of ``size`` bytes in all; other copies go to other memory. Any thread may copy."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._buffer = _ready(size)
        self._used = 0
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Free the buffer; no copy may be in use any more."""
        with self._lock:
            self._used = 0

    def copy(self, array: Array) -> Array:
        """Return a separate array with the same numbers."""
        with self._lock:
            start, end = self._used, self._used + array.nbytes
            if end > self._buffer.size:
                return array.copy()
            self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        copy: Array = self._buffer[start:end].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


def _ready(size: int) -> NDArray[np.uint8]:
    """``size`` bytes that have been touched; empty if the process may not have them."""
    if not 0 < size <= headroom():
        return np.empty(0, np.uint8)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return np.empty(0, np.uint8)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(memory, np.uint8)
    buffer[:: mmap.PAGESIZE] = 0
    return buffer
