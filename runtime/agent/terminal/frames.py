"""The connection of a call: frames in both directions, each a JSON object or bytes."""

from __future__ import annotations

import select
from collections.abc import Mapping
from typing import Any, Protocol

from runtime.control.connection import Connection as Control
from runtime.control.connection import TimedOut
from runtime.control.frames import Kind
from runtime.errors import WireError

# The longest wait for the portal to accept output. It stops reading for as long as the person's connection is slow.
SEND_SECONDS = 60.0
# The longest wait for one frame before the next begins.
_RECEIVE_SECONDS = 3600.0

Frame = Mapping[str, Any] | bytes


class Connection(Protocol):
    """A connection that carries frames. One thread receives and another may send."""

    def receive(self) -> Frame | None:
        """Return the next frame, None at the end of the connection."""

    def send(self, frame: Frame) -> None:
        """Send a frame; waits while the other side does not read. Raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor, to poll for the end of the connection."""


class ControlFrames:
    """A connection of the control channel."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def receive(self) -> Frame | None:
        """Return the next frame, None at the end of the connection."""
        while True:
            try:
                frame = self._control.receive(_RECEIVE_SECONDS)
                return frame.payload if frame.kind is Kind.BYTES else frame.document()
            except TimedOut:
                continue
            except WireError:
                return None

    def fileno(self) -> int:
        """Return the descriptor, to poll for the end of the connection."""
        return self._control.fileno()

    def send(self, frame: Frame) -> None:
        """Send a frame. Raises OSError for a connection that is closed, or not read for SEND_SECONDS."""
        try:
            if isinstance(frame, bytes):
                self._control.send_bytes(frame, SEND_SECONDS)
            else:
                self._control.send_document(frame, SEND_SECONDS)
        except WireError as error:
            self._control.abort()
            raise OSError(str(error)) from None


class Descriptor(Protocol):
    """A connection that can be polled."""

    def fileno(self) -> int:
        """Return the descriptor."""


def await_room(descriptor: int, connection: Descriptor, seconds: float) -> None:
    """Wait until the descriptor accepts input. Raises ConnectionError once the connection, which sent it, has ended.

    Returns after ``seconds`` at the latest, and for a descriptor that nobody reads any more.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        poll.register(connection.fileno(), select.POLLRDHUP)
    except ValueError:
        raise ConnectionError("the connection was closed") from None
    if any(ready != descriptor for ready, _ in poll.poll(seconds * 1000)):
        raise ConnectionError("the connection has ended")
