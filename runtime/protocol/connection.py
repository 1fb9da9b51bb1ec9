"""Messages over a blocking socket. A call ends when no byte has moved for its patience; it has no limit otherwise.

A message is a head frame with a JSON body and any number of block frames; the last frame carries ``Flag.LAST``. Blocks
are received directly into memory that the caller provides.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import Leaving, WireError
from runtime.protocol import frames
from runtime.protocol.frames import HEADER_BYTES, Flag, Header, Op

# The size of one system call: few enough bytes to be in the cache still after the checksum was made, and at most two
# for each frame of the 1024 buffers that the kernel takes.
BYTES_PER_CALL = 1 << 20
FRAMES_PER_CALL = 256
# How often a waiting call checks whether it should give up.
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
    """``head`` is the kind of request or answer, ``body`` its details, ``blocks`` carry the numbers."""

    head: Header
    body: Mapping[str, Any] = field(default_factory=dict)
    blocks: Sequence[Block] = ()


# Called while a message is received: with its head, and with the header of each complete and undamaged block.
Began = Callable[[Header, Mapping[str, Any]], None]
Arrived = Callable[[Header], None]
# Yields the memory to be filled next; returns the message.
Reading = Generator[memoryview, None, Message]


def refuse_blocks(header: Header) -> memoryview:
    """The ``Allocate`` of a receiver that expects no blocks."""
    raise WireError(f"A block of tensor {header.tensor} came where none is expected.")


class Connection:
    """One socket. One thread at a time may receive; messages of several sending threads follow one another.

    ``patience`` is a number of seconds in which no byte moves.
    """

    def __init__(self, link: socket.socket, leaving: Callable[[], bool] = lambda: False) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel ends calls that wait too long. Python's own timeouts would take two more system calls each.
        link.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            link.setsockopt(socket.SOL_SOCKET, option, _LOOK)
        self._link = link
        self._leaving = leaving
        self._header = bytearray(HEADER_BYTES)
        self._sending = threading.Lock()
        self.head_limit = frames.MAX_PAYLOAD  # the limit of a head frame's payload in bytes

    def close(self) -> None:
        self._link.close()

    def abort(self) -> None:
        """End both directions from another thread: a waiting call raises ``Closed``."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            self._link.close()

    def fileno(self) -> int:
        """For ``poll``."""
        return self._link.fileno()

    @property
    def peer(self) -> str:
        """The peer's host, for messages."""
        try:
            return str(self._link.getpeername()[0])
        except OSError:
            return "a host that is gone"

    @property
    def hung_up(self) -> bool:
        """Whether the peer has closed its end and everything it sent was received."""
        return hung_up(self._link)

    @property
    def local(self) -> bool:
        """Whether the peer has this host's address."""
        return bool(self._link.getpeername()[0] == self._link.getsockname()[0])

    # --- Sending -----------------------------------------------------------------------------------------------------
    def send(self, message: Message, patience: float) -> None:
        """Send head and blocks. Raises Closed, DeadlinePassed."""
        with self._sending:
            for parts in write_batches(message):
                self._send_parts(parts, patience)

    def send_aside(self, message: Message) -> None:
        """Send a message without blocks if that does not wait: if no thread sends, and the kernel accepts it."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            if self._takes_more():
                for parts in write_batches(message):
                    self._send_parts(parts, 0.0)
        finally:
            self._sending.release()

    def _takes_more(self) -> bool:
        """Whether the kernel accepts a few bytes at once; False if another thread has closed the connection."""
        if (descriptor := self._link.fileno()) < 0:
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return any(events & select.POLLOUT for _, events in poll.poll(0))

    def leave(self, message: Message) -> bool:
        """Queue a message without blocks; return whether that was possible without waiting.

        It is sent with the next message, after a fifth of a second, or when this process ends for any reason. It does
        not wake the peer by itself. If this returns False, it is not sent.
        """
        if not self._sending.acquire(blocking=False):
            return False
        try:
            for parts in write_batches(message):
                left = _after(views_of(parts), self._link.sendmsg(parts, (), socket.MSG_DONTWAIT | socket.MSG_MORE))
                if left:  # the peer would take half a message for the beginning of the next
                    self.abort()
                    return False
            return True
        except OSError:
            return False
        finally:
            self._sending.release()

    def send_some(self, views: list[memoryview]) -> list[memoryview]:
        """Send as much as possible without waiting; return the rest. Raises Closed."""
        try:
            return _after(views, self._link.sendmsg(views, (), socket.MSG_DONTWAIT))
        except BlockingIOError:
            return views
        except OSError as error:
            raise Closed(f"The connection broke while sending: {error.strerror or error}.") from None

    def _send_parts(self, parts: Sequence[frames.Buffer], patience: float) -> None:
        waiting, moved = views_of(parts), time.monotonic()
        while waiting:
            try:
                waiting = _after(waiting, self._link.sendmsg(waiting))
                moved = time.monotonic()
            except BlockingIOError:
                if time.monotonic() >= moved + patience:
                    raise DeadlinePassed("The peer does not take what is sent to it.") from None
            except OSError as error:
                raise Closed(f"The connection broke while sending: {error.strerror or error}.") from None

    # --- Receiving ---------------------------------------------------------------------------------------------------
    def receive(
        self,
        patience: float,
        allocate: Allocate = refuse_blocks,
        began: Began = lambda head, body: None,
        arrived: Arrived = lambda header: None,
    ) -> Message:
        """Read one message. Raises Closed, DeadlinePassed, WireError, and Leaving when this process should end."""
        reading = self.reading(allocate, began, arrived)
        while True:
            try:
                memory = next(reading)
            except StopIteration as end:
                message: Message = end.value
                return message
            self._fill(memory, patience)

    def reading(
        self,
        allocate: Allocate = refuse_blocks,
        began: Began = lambda head, body: None,
        arrived: Arrived = lambda header: None,
    ) -> Reading:
        """Read one message: before each resumption, the caller fills the memory yielded last. Raises WireError."""
        head, content = yield from self._frame(self._head_memory)
        if head.op is Op.BLOCK:
            raise WireError("A message begins with a block; a head frame is due.")
        body = frames.from_json(content)
        began(head, body)
        blocks: list[Block] = []
        last = head.last
        while not last:
            block = yield from self._frame(allocate)
            blocks.append(block)
            arrived(block[0])
            last = block[0].last
        return Message(head, body, blocks)

    def _head_memory(self, header: Header) -> memoryview:
        if header.size > self.head_limit:
            raise WireError(f"A head frame of {header.size} bytes came where {self.head_limit} are allowed.")
        return memoryview(bytearray(header.size))

    def _frame(self, allocate: Allocate) -> Generator[memoryview, None, Block]:
        yield memoryview(self._header)
        header = frames.unpack(self._header)
        payload = allocate(header)
        if payload.nbytes != header.size:
            raise WireError(f"A block of {header.size} bytes came where {payload.nbytes} are due.")
        yield payload
        frames.verify(self._header, header, payload)
        return header._replace(crc=0), payload  # it was of this frame and does not apply to the next

    def fill_some(self, memory: memoryview) -> int:
        """Receive what is available, at most as much as ``memory`` takes; return the number of bytes. Raises Closed."""
        try:
            got = self._link.recv_into(memory, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise Closed(f"The connection broke while receiving: {error.strerror or error}.") from None
        if not got:
            raise Closed("The peer closed the connection.")
        return got

    def _fill(self, memory: memoryview, patience: float) -> None:
        moved = time.monotonic()
        while memory.nbytes:
            try:
                got = self._link.recv_into(memory, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                self.look(moved + patience)
                continue
            except OSError as error:
                raise Closed(f"The connection broke while receiving: {error.strerror or error}.") from None
            if not got:
                raise Closed("The peer closed the connection.")
            memory, moved = memory[got:], time.monotonic()

    def look(self, deadline: float) -> None:
        """Check a wait that lasts until ``deadline`` (``time.monotonic``). Raises Leaving, DeadlinePassed."""
        if self._leaving():
            raise Leaving("This process was asked to end while it waited for an answer.")
        if time.monotonic() >= deadline:
            raise DeadlinePassed("The peer did not answer in time.")


def hung_up(link: socket.socket) -> bool:
    """Whether the peer of a socket has closed its end and everything it sent was received."""
    try:
        return not link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def write_batches(message: Message) -> Iterator[list[frames.Buffer]]:
    """Split a message into the buffers of one system call each; checksums are made on the way."""
    blocks = message.blocks
    body = frames.to_json(message.body)
    parts: list[frames.Buffer] = [frames.pack(_mark(message.head, last=not blocks), body), body]
    size = 0
    for number, (header, payload) in enumerate(blocks, start=1):
        parts += [frames.pack(_mark(header, last=number == len(blocks)), payload), payload]
        size += payload.nbytes
        if size >= BYTES_PER_CALL or len(parts) >= 2 * FRAMES_PER_CALL:
            yield parts
            parts, size = [], 0
    yield parts


def views_of(parts: Sequence[frames.Buffer]) -> list[memoryview]:
    """Return views of the non-empty buffers of one system call."""
    return [view for part in parts if (view := memoryview(part).cast("B")).nbytes]


def _mark(header: Header, last: bool) -> Header:
    flags = header.flags | Flag.LAST if last else header.flags & ~Flag.LAST
    return header._replace(flags=flags)


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """The rest of ``views`` after ``sent`` bytes of them."""
    for number, view in enumerate(views):
        if sent < view.nbytes:
            return [view[sent:], *views[number + 1 :]]
        sent -= view.nbytes
    return []
