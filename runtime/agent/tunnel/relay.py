"""Passes bytes between a control connection and a socket of the replica, in both directions.

Each direction holds one piece at a time and waits while its receiver does not read, so memory is bounded. A JSON frame
``{"t": "end"}`` is the end of one direction; the other one goes on.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from runtime.agent.terminal.frames import await_room
from runtime.control.connection import Connection, TimedOut
from runtime.control.frames import Frame, FrameError, Kind
from runtime.errors import WireError

END = "end"
PIECE = 64 * 1024
# The longest wait for the portal to accept bytes. It stops reading for as long as the person's connection is slow.
SEND_SECONDS = 300.0
_RECEIVE_SECONDS = 3600.0
_POLL_SECONDS = 1.0


class Relay:
    """One stream. ``run`` returns when both directions, the connection or the socket have ended."""

    def __init__(self, connection: Connection, link: socket.socket) -> None:
        self._connection, self._link = connection, link
        self._lock = threading.Lock()
        self._ended = 0

    def run(self) -> None:
        outward = threading.Thread(target=self._outward, name="stream", daemon=True)
        outward.start()
        try:
            self._inward()
        except (OSError, WireError):
            pass  # one of both ends is gone
        finally:
            self._connection.abort()
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
            outward.join()

    def _inward(self) -> None:
        """Pass on what the portal sends. Raises OSError and WireError."""
        while True:
            try:
                frame = self._connection.receive(_RECEIVE_SECONDS)
            except TimedOut:
                continue
            if frame.kind is Kind.BYTES:
                self._write(frame)
            elif frame.document().get("t") != END:
                raise FrameError("a frame of a stream has an unknown type")
            else:
                self._link.shutdown(socket.SHUT_WR)
                if self._end_direction():
                    return

    def _write(self, frame: Frame) -> None:
        """Send the bytes to the server. Waits while it does not read, as long as the portal's end is open."""
        view = memoryview(frame.payload)
        while view:
            try:
                view = view[self._link.send(view, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                await_room(self._link.fileno(), self._connection, _POLL_SECONDS)

    def _outward(self) -> None:
        """Pass on what the server sends. The connection is aborted when the server or the portal is gone."""
        try:
            while data := self._link.recv(PIECE):
                self._connection.send_bytes(data, SEND_SECONDS)
            self._connection.send_document({"t": END}, SEND_SECONDS)
            if self._end_direction():
                self._connection.abort()
        except (OSError, WireError):
            self._connection.abort()

    def _end_direction(self) -> bool:
        """Note the end of a direction. Return whether both have ended."""
        with self._lock:
            self._ended += 1
            return self._ended == 2
