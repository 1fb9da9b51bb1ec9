"""Arrays that can show the servers' own memory: a pull copies nothing, and references to the arrays stay valid.

The arrays have fixed addresses. Pages of a server's segment can be mapped at parts of them, for reading. When they are
kept instead, each page is copied and belongs to this process. Concurrent readers see no difference.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.declaration import BlockPlace
from runtime.protocol.shared_memory import PAGE, Layout, offsets

Array = NDArray[Any]

# A process may have some 65,000 mappings. With more parts than this, values are copied.
MOST_RUNS = 8192
# Linux 5.14, later than Python's names for advice: map the pages before they are read. Otherwise each is mapped at its
# first read.
_POPULATE_READ = 22
_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


class Run(NamedTuple):
    """Bytes of a window, whole pages, that are contiguous in a server's segment."""

    begin: int
    size: int
    source: int


class Window:
    """One flat array for every entry of ``layout``, zeroed. Raises OSError."""

    def __init__(self, layout: Layout) -> None:
        self._offsets = offsets(layout)
        self._memory = mmap.mmap(-1, max(self._offsets[-1], PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._address = self._bytes.ctypes.data
        self.arrays = [
            np.frombuffer(self._memory, dtype, size, offset)
            for (size, dtype), offset in zip(layout, self._offsets, strict=False)
        ]

    def runs(self, places: Sequence[BlockPlace], sources: Sequence[int]) -> list[Run]:
        """The runs of the pages of these blocks; each block begins at one of ``sources`` in the segment."""
        found: list[Run] = []
        for begin, size, source in self._pieces(places, sources):
            last = found[-1] if found else Run(0, 0, 0)
            if (last.begin + last.size, last.source + last.size) == (begin, source):
                found[-1] = last._replace(size=last.size + size)
            else:
                found.append(Run(begin, size, source))
        return found

    def _pieces(self, places: Sequence[BlockPlace], sources: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        for place, source in zip(places, sources, strict=True):
            item = self.arrays[place.tensor].itemsize
            begin = self._offsets[place.tensor] + place.start * item
            yield begin, -(-(place.stop - place.start) * item // PAGE) * PAGE, source

    def show(self, runs: Sequence[Run], descriptor: int) -> None:
        """Map pages of a segment in place of these. They are read-only then. Raises OSError."""
        for run in runs:
            where = self._address + run.begin
            found = _libc().mmap(where, run.size, mmap.PROT_READ, mmap.MAP_PRIVATE | _FIXED, descriptor, run.source)
            if found == _FAILED:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            _libc().madvise(where, run.size, _POPULATE_READ)

    def keep(self, runs: Sequence[Run]) -> None:
        """Make these pages private to this process, with their present numbers. Raises OSError."""
        for run in runs:
            if _libc().mprotect(self._address + run.begin, run.size, mmap.PROT_READ | mmap.PROT_WRITE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            # Writing the present value makes the system copy the page.
            pages = self._bytes[run.begin : run.begin + run.size : PAGE]
            np.bitwise_or(pages, 0, out=pages)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, address, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.argtypes, libc.mmap.restype = (address, size, number, number, number, ctypes.c_long), address
    libc.mprotect.argtypes = (address, size, number)
    libc.madvise.argtypes = (address, size, number)
    return libc
