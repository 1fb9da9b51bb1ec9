"""Memory for the copies that a checkpoint needs, had from the system before anybody waits for it.

A page that is touched for the first time may cost more than copying it. So the pages for a snapshot are made ready by
the thread that writes checkpoints, not by the push that has to copy what it changes; and they are kept for the next.
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
    """Room for copies of ``size`` bytes in all; what does not fit is copied to other memory. Any thread may copy."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._buffer = _ready(size)
        self._used = 0
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Nobody has a copy any more: there is room for others."""
        with self._lock:
            self._used = 0

    def copy(self, array: Array) -> Array:
        """An array of its own with the same numbers."""
        with self._lock:
            start, end = self._used, self._used + array.nbytes
            if end > self._buffer.size:
                return array.copy()
            self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        copy: Array = self._buffer[start:end].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


def _ready(size: int) -> NDArray[np.uint8]:
    """So many bytes that have been touched; none where the process may not have them."""
    if not 0 < size <= headroom():
        return np.empty(0, np.uint8)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return np.empty(0, np.uint8)
    with contextlib.suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(memory, np.uint8)
    buffer[:: mmap.PAGESIZE] = 0
    return buffer
