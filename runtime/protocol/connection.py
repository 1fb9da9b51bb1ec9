"""Messages over a blocking socket, with a deadline on every call.

A message is a head frame with a JSON body and any number of block frames; the last frame carries ``Flag.LAST``. Blocks
are received straight into memory that the caller provides.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import Leaving, WireError
from runtime.protocol import frames
from runtime.protocol.frames import HEADER_BYTES, Flag, Header, Op

# What leaves in one system call: few enough bytes to be in the cache still after the checksum was made, and of the 1024
# buffers that the kernel takes at most two for each frame.
BYTES_PER_CALL = 1 << 20
FRAMES_PER_CALL = 256
# How often a waiting call looks whether it should give up.
LOOK_SECONDS = 0.5
_LOOK = struct.pack("ll", 0, int(LOOK_SECONDS * 1e6))

Block = tuple[Header, memoryview]
Allocate = Callable[[Header], memoryview]


class Closed(WireError):
    """The peer closed the connection, or the network broke it."""


class DeadlinePassed(WireError):
    """The peer did not answer in time."""


@dataclass(frozen=True)
class Message:
    """``head`` says what is asked or answered, ``body`` how, ``blocks`` carry the numbers."""

    head: Header
    body: Mapping[str, Any] = field(default_factory=dict)
    blocks: Sequence[Block] = ()


def refuse_blocks(header: Header) -> memoryview:
    """The ``Allocate`` of a receiver that expects no blocks."""
    raise WireError(f"A block of tensor {header.tensor} came where none is expected.")


class Connection:
    """One socket. Not for two threads at once."""

    def __init__(self, link: socket.socket, leaving: Callable[[], bool] = lambda: False) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel ends calls that wait too long. Python's own timeouts would take two more system calls each.
        link.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            link.setsockopt(socket.SOL_SOCKET, option, _LOOK)
        self._link = link
        self._leaving = leaving
        self._header = bytearray(HEADER_BYTES)

    def close(self) -> None:
        self._link.close()

    def abort(self) -> None:
        """End both directions from another thread: a call that waits fails with ``Closed``."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            self._link.close()

    # --- Sending -----------------------------------------------------------------------------------------------------
    def send(self, message: Message, deadline: float) -> None:
        """Send head and blocks. ``deadline`` is a time of ``time.monotonic``."""
        blocks = message.blocks
        body = frames.to_json(message.body)
        parts: list[frames.Buffer] = [frames.pack(_mark(message.head, last=not blocks), body), body]
        size = 0
        for number, (header, payload) in enumerate(blocks, start=1):
            parts += [frames.pack(_mark(header, last=number == len(blocks)), payload), payload]
            size += payload.nbytes
            if size >= BYTES_PER_CALL or len(parts) >= 2 * FRAMES_PER_CALL:
                self._send_parts(parts, deadline)
                parts, size = [], 0
        self._send_parts(parts, deadline)

    def _send_parts(self, parts: Sequence[frames.Buffer], deadline: float) -> None:
        waiting = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        while waiting:
            try:
                waiting = _after(waiting, self._link.sendmsg(waiting))
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise DeadlinePassed("The peer does not take what is sent to it.") from None
            except OSError as error:
                raise Closed(f"The connection broke while sending: {error.strerror or error}.") from None

    # --- Receiving ---------------------------------------------------------------------------------------------------
    def receive(self, deadline: float, allocate: Allocate = refuse_blocks) -> Message:
        """Read one message. Raises Closed, DeadlinePassed, WireError, and Leaving when this process should end."""
        head, body = self._receive_frame(deadline, lambda header: memoryview(bytearray(header.size)))
        if head.op is Op.BLOCK:
            raise WireError("A message begins with a block; a head frame is due.")
        blocks: list[Block] = []
        last = head.last
        while not last:
            block = self._receive_frame(deadline, allocate)
            blocks.append(block)
            last = block[0].last
        return Message(head, frames.from_json(body), blocks)

    def _receive_frame(self, deadline: float, allocate: Allocate) -> Block:
        self._fill(memoryview(self._header), deadline)
        header = frames.unpack(self._header)
        payload = allocate(header)
        if payload.nbytes != header.size:
            raise WireError(f"A block of {header.size} bytes came where {payload.nbytes} are due.")
        self._fill(payload, deadline)
        frames.verify(self._header, header, payload)
        return header._replace(crc=0), payload  # it was of this frame, and says nothing of the next one

    def _fill(self, memory: memoryview, deadline: float) -> None:
        while memory.nbytes:
            try:
                got = self._link.recv_into(memory, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                self._look(deadline)
                continue
            except OSError as error:
                raise Closed(f"The connection broke while receiving: {error.strerror or error}.") from None
            if not got:
                raise Closed("The peer closed the connection.")
            memory = memory[got:]

    def _look(self, deadline: float) -> None:
        if self._leaving():
            raise Leaving("This process was asked to end while it waited for an answer.")
        if time.monotonic() >= deadline:
            raise DeadlinePassed("The peer did not answer in time.")


def _mark(header: Header, last: bool) -> Header:
    flags = header.flags | Flag.LAST if last else header.flags & ~Flag.LAST
    return header._replace(flags=flags)


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of ``views`` after ``sent`` bytes of them."""
    for number, view in enumerate(views):
        if sent < view.nbytes:
            return [view[sent:], *views[number + 1 :]]
        sent -= view.nbytes
    return []
