"""Messages over a blocking socket, with a deadline on every call.

A message is a head frame with a JSON body and any number of block frames; the last frame carries ``Flag.LAST``. Blocks
are received straight into memory that the caller provides.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import Leaving, WireError
from runtime.protocol import frames
from runtime.protocol.frames import HEADER_BYTES, Flag, Header, Op

# Frames that leave in one system call; the kernel takes at most 1024 buffers, two for each frame.
FRAMES_PER_CALL = 256
# How often a waiting call looks whether it should give up.
LOOK_SECONDS = 0.5

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
        for number, (header, payload) in enumerate(blocks, start=1):
            parts += [frames.pack(_mark(header, last=number == len(blocks)), payload), payload]
            if len(parts) >= 2 * FRAMES_PER_CALL:
                self._send_parts(parts, deadline)
                parts = []
        self._send_parts(parts, deadline)

    def _send_parts(self, parts: Sequence[frames.Buffer], deadline: float) -> None:
        waiting = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        while waiting:
            self._link.settimeout(_remaining(deadline))
            try:
                sent = self._link.sendmsg(waiting)
            except TimeoutError:
                raise DeadlinePassed("The peer does not take what is sent to it.") from None
            except OSError as error:
                raise Closed(f"The connection broke while sending: {error.strerror or error}.") from None
            waiting = _after(waiting, sent)

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
        return header, payload

    def _fill(self, memory: memoryview, deadline: float) -> None:
        while memory.nbytes:
            self._link.settimeout(min(LOOK_SECONDS, _remaining(deadline)))
            try:
                got = self._link.recv_into(memory)
            except TimeoutError:
                self._look()
                continue
            except OSError as error:
                raise Closed(f"The connection broke while receiving: {error.strerror or error}.") from None
            if not got:
                raise Closed("The peer closed the connection.")
            memory = memory[got:]

    def _look(self) -> None:
        if self._leaving():
            raise Leaving("This process was asked to end while it waited for an answer.")


def _mark(header: Header, last: bool) -> Header:
    flags = header.flags | Flag.LAST if last else header.flags & ~Flag.LAST
    return header._replace(flags=flags)


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlinePassed("The peer did not answer in time.")
    return left


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of ``views`` after ``sent`` bytes of them."""
    for number, view in enumerate(views):
        if sent < view.nbytes:
            return [view[sent:], *views[number + 1 :]]
        sent -= view.nbytes
    return []
