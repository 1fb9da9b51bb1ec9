"""One end of a control connection over a socket, with a time limit on every call."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from runtime.control import frames
from runtime.control.frames import Decoder, Frame, Kind
from runtime.errors import WireError

_PIECE = 64 * 1024


class Closed(WireError):
    """The peer has closed the connection, or it broke."""


class TimedOut(WireError):
    """The peer has not sent or taken a whole frame within the time limit."""


class Connection:
    """Sends and receives frames. One thread may send while another receives; several may send."""

    def __init__(self, link: socket.socket, limit: int = frames.PAYLOAD_LIMIT) -> None:
        """``limit``: the longest payload to accept, until ``accept_all`` is called."""
        link.setblocking(False)
        self._link = link
        self._decoder = Decoder(limit)
        self._sending = threading.Lock()

    def accept_all(self) -> None:
        """Accept payloads up to ``frames.PAYLOAD_LIMIT`` from now on."""
        self._decoder.limit = frames.PAYLOAD_LIMIT

    def fileno(self) -> int:
        """Return the descriptor, to poll for data. A frame may be buffered all the same: ``receive`` with 0 seconds."""
        return self._link.fileno()

    def receive(self, seconds: float) -> Frame:
        """Return the next frame. Raises TimedOut, Closed and FrameError; after the last two, close the connection."""
        deadline = time.monotonic() + seconds
        while (frame := self._decoder.next_frame()) is None:
            try:
                data = self._link.recv(_PIECE)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except OSError as error:
                raise Closed(f"the connection broke: {error.strerror}") from None
            if not data:
                raise Closed("the peer closed the connection")
            self._decoder.feed(data)
        return frame

    def send(self, frame: Frame, seconds: float) -> None:
        """Send the frame whole. Raises TimedOut and Closed; close the connection after either."""
        deadline, data = time.monotonic() + seconds, memoryview(frames.encode(frame))
        with self._sending:
            while data:
                try:
                    data = data[self._link.send(data, socket.MSG_NOSIGNAL) :]
                except BlockingIOError:
                    self._wait(select.POLLOUT, deadline)
                except OSError as error:
                    raise Closed(f"the connection broke: {error.strerror}") from None

    def receive_document(self, seconds: float) -> dict[str, Any]:
        return self.receive(seconds).document()

    def send_document(self, document: Mapping[str, Any], seconds: float) -> None:
        self.send(frames.of_document(document), seconds)

    def send_bytes(self, data: bytes, seconds: float) -> None:
        self.send(Frame(Kind.BYTES, data), seconds)

    def close(self) -> None:
        """Close the connection. A thread that waits in ``receive`` or ``send`` gets Closed."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def abort(self) -> None:
        """End the connection from another thread than its own, which then closes it."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def _wait(self, events: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        poll = select.poll()
        try:
            poll.register(self._link, events)
        except ValueError:
            raise Closed("the connection was closed") from None
        if left <= 0 or not poll.poll(left * 1000):
            raise TimedOut("the peer did not answer in time")
