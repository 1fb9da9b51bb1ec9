"""Memory that two processes of one host map, so that numbers need not pass through a socket.

The one that makes a segment names it by process and descriptor; the other opens it through ``/proc``. That fails by
itself between hosts, containers and users, which is how a pair of processes finds out whether it can share memory.
Nothing is left behind when a process is killed, and sealing keeps the size fixed under the reader's feet.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The code that refuses a request whose numbers are in memory that its connection does not share.
NOT_SHARED = "not_shared"

# Arrays begin at the start of a cache line; so does the token that tells the segment from any other.
_ALIGNMENT = 64
_TOKEN_BYTES = 16
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Segment:
    """Flat arrays like ``like``, one after the other in shared memory. ``where`` is what the other process needs."""

    def __init__(self, memory: mmap.mmap, like: Sequence[Array], where: Mapping[str, Any]) -> None:
        self._memory = memory
        self.where = where
        offsets = _offsets(like)
        self.arrays = [
            np.frombuffer(memory, array.dtype, array.size, offset) for array, offset in zip(like, offsets, strict=False)
        ]

    @classmethod
    def create(cls, like: Sequence[Array]) -> Segment:
        """A new segment. Raises OSError where the system has none or no memory for it."""
        if not hasattr(os, "memfd_create"):
            raise OSError("This system has no memory that is named by a descriptor.")
        end = _offsets(like)[-1]
        descriptor = os.memfd_create("regatta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, end + _TOKEN_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(descriptor, end + _TOKEN_BYTES)
        except OSError:
            os.close(descriptor)
            raise
        token = secrets.token_bytes(_TOKEN_BYTES)
        memory[end:] = token
        return cls(memory, like, {"process": os.getpid(), "descriptor": descriptor, "token": token.hex()})

    @classmethod
    def open(cls, where: Mapping[str, Any], like: Sequence[Array]) -> Segment:
        """Map a segment of another process. Raises OSError or ValueError where it is out of reach or another one."""
        end = _offsets(like)[-1]
        with _opened(f"/proc/{int(where['process'])}/fd/{int(where['descriptor'])}") as descriptor:
            if os.fstat(descriptor).st_size != end + _TOKEN_BYTES:
                raise ValueError("The segment has another size.")
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("The segment could shrink while it is read.")
            memory = mmap.mmap(descriptor, end + _TOKEN_BYTES)
        if memory[end:].hex() != where["token"]:
            raise ValueError("The descriptor leads to another segment.")
        return cls(memory, like, where)

    def forget(self) -> None:
        """The other process has opened it, or never will: give the descriptor up."""
        os.close(int(self.where["descriptor"]))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _offsets(like: Sequence[Array]) -> list[int]:
    """Where each array begins, and where the last one ends."""
    offsets = [0]
    for array in like:
        offsets.append(offsets[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    return offsets
