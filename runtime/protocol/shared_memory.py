"""Memory that two processes of one host map, so that numbers need not pass through a socket.

A segment has no name in any file system: nothing is left behind when a process is killed. The other process gets at it
in one of two ways. It opens the descriptor of the process that it visits through ``/proc``, or it is handed the
descriptor over a socket that it has put up itself, which a confined process can do as well. Both fail by themselves
between hosts, containers and users; that is how a pair of processes finds out whether it can share memory. Sealing
keeps the size fixed under the reader's feet.
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
# Elements and type of each array, one after the other.
Layout = Sequence[tuple[int, str]]

# The code that refuses a request whose numbers are in memory that its connection does not share.
NOT_SHARED = "not_shared"

# Arrays begin at the start of a page, so that another process can map one of them where it wants to have it; so does
# the token that tells the segment from any other.
PAGE = mmap.PAGESIZE
_TOKEN_BYTES = 16
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# Linux 5.1; Python 3.13 has a name for it. Only mappings made before can be written through.
_SEAL_FUTURE_WRITE = 0x10
# Strangers may fill the queue of a handover: numbers go over the socket then.
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
        """A new segment, zeroed; ``private``: only this process can write to it. Raises OSError."""
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memory that is named by a descriptor")
        end = offsets(layout)[-1]
        descriptor = os.memfd_create("regatta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, end + _TOKEN_BYTES)
            # Memory that is short must fail here, in words, and not kill the process when it first writes.
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
        """Map a segment of another process. Raises OSError or ValueError where it is out of reach or another one."""
        with _opened(f"/proc/{int(where['process'])}/fd/{int(where['descriptor'])}") as descriptor:
            segment = cls(_mapped(descriptor, layout, mmap.PROT_READ | mmap.PROT_WRITE), layout)
        if segment.where["token"] != where["token"]:
            raise ValueError("The descriptor leads to another segment.")
        return segment

    @classmethod
    def adopt(cls, descriptor: int, layout: Layout) -> Segment:
        """Map another process's private segment for reading; the descriptor is the segment's now, or else closed.
        Raises OSError, ValueError."""
        try:
            return cls(_mapped(descriptor, layout, mmap.PROT_READ), layout, descriptor)
        except (OSError, ValueError):
            os.close(descriptor)
            raise

    def leave(self, visit: Visit, secret: bytes = b"") -> None:
        """Hand the descriptor over to the process that is visited, with a proof of the attempt's secret. Raises
        OSError."""
        socket.send_fds(visit.link, [proof.of_handover(secret, visit.name)], [self.descriptor])

    def close(self) -> None:
        """Give the descriptor up; the arrays stay. May be called twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Visit:
    """A connection to the process that has put up ``Handover`` ``name``. Raises OSError where nobody has.

    ``process`` is its number as the kernel sees it from here: a process in a PID namespace has another one for itself,
    and one that lies could have any process's descriptors opened.
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
    """Where a process of this host can leave a descriptor, under a random name and in no file system.

    The kernel lists the name for every process of the host: what comes without a proof of the attempt's ``secret`` is
    a stranger's and is not used.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self.name = secrets.token_hex(_TOKEN_BYTES)
        self._expected = proof.of_handover(secret, self.name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(_address(self.name))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)

    def collect(self) -> int:
        """The descriptor that was left. Raises OSError where there is none with a proof."""
        while True:
            link, _address = self._listener.accept()
            with link:
                link.setblocking(False)
                descriptor = self._received(link)
            if descriptor is not None:
                return descriptor

    def _received(self, link: socket.socket) -> int | None:
        """The descriptor of one that has left it; None of a stranger."""
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
    """Where each array begins, and where the last one ends."""
    begins = [0]
    for size, dtype in layout:
        nbytes = size * np.dtype(dtype).itemsize
        begins.append(begins[-1] + -(-nbytes // PAGE) * PAGE)
    return begins
