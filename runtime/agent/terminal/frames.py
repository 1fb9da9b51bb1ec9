"""The connection of a call: frames in both directions, each a JSON object or bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Frame = Mapping[str, Any] | bytes


class Connection(Protocol):
    """A connection that carries frames. One thread receives and another may send."""

    def receive(self) -> Frame | None:
        """Return the next frame, None at the end of the connection."""

    def send(self, frame: Frame) -> None:
        """Send a frame; waits while the other side does not read. Raises OSError."""
