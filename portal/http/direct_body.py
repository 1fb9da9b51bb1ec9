"""Request bodies that a thread reads from the socket itself.

Data that passes through the event loop is copied five times, in pieces as small as they arrive, and each piece wakes a
task and a thread. Here the scope of a request offers (``request_streaming.DIRECT_BODY``) that its reader takes the rest
of the body from the socket. The loop does not read the connection meanwhile. When the connection is returned, the
parser is fed as many zeros as bytes were taken, and passes none of them on. So its position is that of the connection:
at the end of the body or, when the reader stopped early, in the middle of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from portal.http import request_streaming
from portal.http.connection_limits import LimitedHttpProtocol
from portal.http.request_streaming import Interrupted

# A rest of fewer bytes is not worth it.
LEAST = 1 << 18
# A reader is woken when so many bytes are there.
_AT_ONCE = 1 << 19
# Fewer bytes than that are taken after so many seconds.
_LOOK_SECONDS = 5.0
_ZEROS = memoryview(bytes(1 << 16))
# The series of uvicorn whose internals the protocol uses: ``cycle``, ``flow``, ``parser`` and ``on_body``.
UVICORN_SERIES = "0.54"


class DirectBody:
    """The rest of a body, ``left`` bytes. One thread calls ``read``; the event loop calls ``release``.

    ``link`` is a duplicate descriptor of the connection. ``taken_back`` is called with the number of bytes that were
    read, or with None when a thread is still reading and the connection has to be closed.
    """

    def __init__(self, link: socket.socket, left: int, taken_back: Callable[[int | None], None]) -> None:
        self.left = left
        self._length = left
        self._link = link
        self._taken_back = taken_back
        self._at_once = 1
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._changing = threading.Lock()
        self._reading = False
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most ``size``. Raises Interrupted."""
        with self._changing:
            if self._ended:
                raise Interrupted("The request is over.")
            self._reading = True
        try:
            piece = self._receive(min(size, self.left))
            self.left -= len(piece)
            return piece
        finally:
            with self._changing:
                self._reading = False
                if self._ended:
                    self._link.close()

    def _receive(self, size: int) -> bytes:
        self._wake_at(min(size, _AT_ONCE))
        until = time.monotonic() + request_streaming.SILENCE_SECONDS
        try:
            while (left := until - time.monotonic()) > 0:
                self._poll.poll(min(left, _LOOK_SECONDS) * 1000)
                with contextlib.suppress(BlockingIOError):
                    if piece := self._link.recv(size):
                        return piece
                    raise Interrupted("The sender has gone.")
        except ConnectionError as error:
            raise Interrupted("The sender has gone.") from error
        raise Interrupted("The sender was silent for too long.")

    def _wake_at(self, count: int) -> None:
        if count != self._at_once:
            self._at_once = count
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def release(self) -> None:
        """Let the event loop read the connection again. May be called twice."""
        with self._changing:
            if self._ended:
                return
            self._ended = True
            reading = self._reading
            if reading:
                self._link.shutdown(socket.SHUT_RDWR)  # wakes the reader
            else:
                self._wake_at(1)
                self._link.close()
        self._taken_back(None if reading else self._length - self.left)


class DirectBodyHttpProtocol(LimitedHttpProtocol):
    """Offers the rest of a body of known length to its reader, on connections that are not encrypted."""

    _came = 0  # bytes of the body that passed through the parser
    _skips = False

    def on_headers_complete(self) -> None:
        self._came = 0
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            offer = partial(self._lend, self.cycle)
            self.scope["extensions"] = {request_streaming.DIRECT_BODY: offer}  # type: ignore[dict-item]  # uvicorn: plain values

    def on_body(self, body: bytes) -> None:
        if not self._skips:
            self._came += len(body)
            super().on_body(body)

    def _lend(self, cycle: RequestResponseCycle) -> DirectBody | None:
        """Return the rest of the body; None when it cannot be lent, or has arrived and waits for ``receive``."""
        left = _length(self.headers) - self._came
        link = self.transport.get_extra_info("socket")
        encrypted = self.transport.get_extra_info("sslcontext") is not None
        if cycle is not self.cycle or cycle.body or left < LEAST or encrypted or self.transport.is_closing():
            return None
        self.flow.pause_reading()
        return DirectBody(socket.socket(fileno=os.dup(link.fileno())), left, self._take_back)

    def _take_back(self, taken: int | None) -> None:
        if taken is None or self.transport.is_closing():
            self.transport.abort()
            return
        self._skips = True
        try:
            while taken:
                zeros = _ZEROS[:taken]
                self.parser.feed_data(zeros)
                taken -= len(zeros)
        finally:
            self._skips = False
        self.flow.resume_reading()


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the length of the body; 0 when it is not declared."""
    content_lengths = [value for name, value in headers if name == b"content-length"]
    return int(content_lengths[0]) if len(content_lengths) == 1 and content_lengths[0].isdigit() else 0


def http_protocol(*, direct: bool, version: str = uvicorn.__version__) -> type[LimitedHttpProtocol]:
    """Return the protocol of connections. Without ``direct``, or with an untested series of uvicorn, all bodies pass
    through the event loop."""
    return DirectBodyHttpProtocol if direct and version.rpartition(".")[0] == UVICORN_SERIES else LimitedHttpProtocol
