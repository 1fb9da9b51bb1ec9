"""Callers of an agent's terminal and exec over its control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from runtime.control import identity
from runtime.control.connection import Connection
from runtime.control.frames import Kind
from runtime.errors import WireError
from runtime.protocol.proof import Claim

KEY = "the key of the attempt"
SECONDS = 20.0


class Caller:
    """One call, with the frames that it has received."""

    def __init__(self, directory: Path, **request: Any) -> None:
        place = os.open(directory, os.O_PATH)
        link = socket.socket(socket.AF_UNIX)
        link.connect(identity.short_address(place))
        os.close(place)
        self.connection = Connection(link)
        claim = Claim(KEY.encode(), identity.name_of("attempt", directory.name))
        self.connection.send_document(claim.hello(), SECONDS)
        self.connection.send_document(claim.prove(self.connection.receive_document(SECONDS)), SECONDS)
        self.connection.send_document(request, SECONDS)
        self.output = b""
        self.messages: list[dict[str, Any]] = []

    def enter(self, text: str | bytes) -> None:
        self.connection.send_bytes(text.encode() if isinstance(text, str) else text, SECONDS)

    def tell(self, **message: Any) -> None:
        self.connection.send_document(message, SECONDS)

    def take(self) -> dict[str, Any] | bytes:
        """Receive one frame."""
        frame = self.connection.receive(SECONDS)
        if frame.kind is Kind.BYTES:
            self.output += frame.payload
            return frame.payload
        self.messages.append(frame.document())
        return self.messages[-1]

    def until(self, text: str) -> str:
        """Receive frames until the output contains the text. Return the output."""
        while text.encode() not in self.output:
            self.take()
        return self.output.decode("utf-8", "replace")

    def message(self, kind: str) -> dict[str, Any]:
        """Receive frames until a message of that kind, and return it."""
        while not any(message.get("t") == kind for message in self.messages):
            self.take()
        return next(message for message in self.messages if message.get("t") == kind)

    def streams(self) -> tuple[str, str, int]:
        """Receive everything of a command. Return its standard output, its standard error and its exit code."""
        found = {1: b"", 2: b""}
        while not isinstance(frame := self.take(), dict) or frame.get("t") == "started":
            if isinstance(frame, bytes):
                found[frame[0]] += frame[1:]
        assert frame["t"] == "exit", frame
        return found[1].decode(), found[2].decode(), frame["code"]

    def is_over(self) -> bool:
        """Receive frames until the agent closes the connection."""
        try:
            while True:
                self.take()
        except WireError:
            return True

    def leave(self) -> None:
        self.connection.close()
