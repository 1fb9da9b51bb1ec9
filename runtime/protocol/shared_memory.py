"""Memory that two processes of one host map, so that numbers need not pass through a socket.

A segment has no name in any file system: nothing is left behind when a process is killed. The other process gets access
in one of two ways. It opens the descriptor of the visited process through ``/proc``. Or it receives the descriptor over
a socket that it has created itself, which a confined process can do as well. Both fail between hosts, containers and
users; from this a pair of processes detects whether it can share memory. Sealing keeps the size fixed while it is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.protocol import proof

Array = NDArray[Any]
# The number of elements and the type of each array, in order.
Layout = Sequence[tuple[int, str]]

# The code that refuses a request whose numbers are in memory that its connection does not share.
NOT_SHARED = "not_shared"

# Arrays begin at the start of a page, so that another process can map one of them where it needs it. So does the token
# that distinguishes the segment from others.
PAGE = mmap.PAGESIZE
_TOKEN_BYTES = 16
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# Linux 5.1; Python 3.13 has a name for it. Only existing mappings stay writable.
_SEAL_FUTURE_WRITE = 0x10
# Other processes may fill the queue of a handover: numbers go over the socket then.
_BACKLOG = 16

_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Segment:
    """Flat arrays in shared memory. ``where`` is what another process needs for ``open``."""

    def __init__(self, memory: mmap.mmap, layout: Layout, descriptor: int = -1) -> None:
        self.offsets = offsets(layout)
        self.descriptor = descriptor
        self.where = {"process": os.getpid(), "descriptor": descriptor, "token": memory[self.offsets[-1] :].hex()}
        self.arrays = [
            np.frombuffer(memory, dtype, size, offset)
            for (size, dtype), offset in zip(layout, self.offsets, strict=False)
        ]

    @classmethod
    def create(cls, layout: Layout, private: bool = False) -> Segment:
        """Create a zeroed segment; ``private``: only this process can write to it. Raises OSError."""
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memory that is named by a descriptor")
        end = offsets(layout)[-1]
        descriptor = os.memfd_create("regatta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, end + _TOKEN_BYTES)
            # A shortage of memory must be an error here, and not kill the process at its first write.
            os.posix_fallocate(descriptor, 0, end + _TOKEN_BYTES)
            memory = mmap.mmap(descriptor, end + _TOKEN_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | _SEAL_FUTURE_WRITE if private else _SEALS)
        except OSError:
            os.close(descriptor)
            raise
        memory[end:] = secrets.token_bytes(_TOKEN_BYTES)
        return cls(memory, layout, descriptor)

    @classmethod
    def open(cls, where: Mapping[str, Any], layout: Layout) -> Segment:
        """Map a segment of another process. Raises OSError or ValueError if it is out of reach or another one."""
        with _opened(f"/proc/{int(where['process'])}/fd/{int(where['descriptor'])}") as descriptor:
            segment = cls(_mapped(descriptor, layout, mmap.PROT_READ | mmap.PROT_WRITE), layout)
        if segment.where["token"] != where["token"]:
            raise ValueError("The descriptor leads to another segment.")
        return segment

    @classmethod
    def adopt(cls, descriptor: int, layout: Layout) -> Segment:
        """Map another process's private segment for reading. Raises OSError, ValueError.

        The segment takes over the descriptor; after an error it is closed.
        """
        try:
            return cls(_mapped(descriptor, layout, mmap.PROT_READ), layout, descriptor)
        except (OSError, ValueError):
            os.close(descriptor)
            raise

    def leave(self, visit: Visit, secret: bytes = b"") -> None:
        """Send the descriptor to the visited process, with a proof of the attempt's secret. Raises OSError."""
        socket.send_fds(visit.link, [proof.of_handover(secret, visit.name)], [self.descriptor])

    def close(self) -> None:
        """Close the descriptor; the arrays stay. May be called twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Visit:
    """A connection to the process that has created ``Handover`` ``name``. Raises OSError if there is none.

    ``process`` is its number as the kernel reports it here. A process in a PID namespace has another number for itself,
    and a false number could give access to any process's descriptors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.link.setblocking(False)
            self.link.connect(_address(name))
            credentials = self.link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            self.process, _user, _group = _CREDENTIALS.unpack(credentials)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self.link.close()


class Handover:
    """Receives a descriptor from a process of this host, under a random name and in no file system.

    The kernel lists the name for every process of the host. A descriptor without a proof of the attempt's ``secret`` is
    foreign and is not used.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self.name = secrets.token_hex(_TOKEN_BYTES)
        self._expected = proof.of_handover(secret, self.name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(_address(self.name))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)

    def collect(self) -> int:
        """Return the descriptor that was sent. Raises OSError if there is none with a proof."""
        while True:
            link, _address = self._listener.accept()
            with link:
                link.setblocking(False)
                descriptor = self._received(link)
            if descriptor is not None:
                return descriptor

    def _received(self, link: socket.socket) -> int | None:
        """The descriptor sent over a connection; None without a proof."""
        try:
            data, descriptors, _flags, _peer = socket.recv_fds(link, len(self._expected), 1)
        except OSError:
            return None
        if len(descriptors) == 1 and hmac.compare_digest(data, self._expected):
            return descriptors[0]
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def close(self) -> None:
        self._listener.close()


def _address(name: str) -> str:
    return f"\0regatta-{name}"


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, layout: Layout, protection: int) -> mmap.mmap:
    size = offsets(layout)[-1] + _TOKEN_BYTES
    if os.fstat(descriptor).st_size != size:
        raise ValueError("The segment has another size.")
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise ValueError("The segment could shrink while it is read.")
    return mmap.mmap(descriptor, size, prot=protection)


def offsets(layout: Layout) -> list[int]:
    """The offset of each array, and the end of the last one."""
    begins = [0]
    for size, dtype in layout:
        nbytes = size * np.dtype(dtype).itemsize
        begins.append(begins[-1] + -(-nbytes // PAGE) * PAGE)
    return begins
