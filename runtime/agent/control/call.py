"""One call of the portal, and the form of its handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.agent.child_process import Child
from runtime.agent.settings import Settings
from runtime.control.connection import Connection

Request = Mapping[str, Any]


class Refusal(Exception):
    """The call is answered with ``{"ok": false, "code": code, "message": message}``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class Call:
    """One call: the replica that it is about, the connection, and the request with its parameters, unchecked."""

    settings: Settings
    child: Child
    connection: Connection
    request: Request


# Runs in a thread of its own. Returns the fields of the answer; None: the handler has used the connection as a stream
# of frames in both directions, and it is closed. Raises Refusal, and WireError from the connection. Anything that the
# replica's processes say is hostile input, and the handler bounds its time, memory and output.
Handler = Callable[[Call], Mapping[str, Any] | None]
