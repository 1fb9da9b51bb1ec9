"""One request over HTTP to a server that listens on a Unix socket in a running replica.

The response comes from user code: its size and its time are bounded, and it may be anything.
"""

from __future__ import annotations

import json
import time
from typing import Any

import h11

from jobs.backends.base import AttemptRef
from jobs.control.errors import ControlError, Unreachable
from jobs.control.streams import Stream, address_of
from jobs.messages import control as messages

# Bytes of a response's body.
LONGEST = 1024 * 1024


def get_json(ref: AttemptRef, replica: str, socket: str, path: str, seconds: float) -> dict[str, Any]:
    """GET ``path`` and return the JSON object of the response, within ``seconds``.

    Raises ControlError, also for a response that is no such object or has another status than 200.
    """
    deadline = time.monotonic() + seconds
    stream = Stream(ref, replica, address_of(socket=socket), seconds)
    try:
        body = _get(stream, replica, path, deadline)
    finally:
        stream.close()
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _broken(replica, "its response is no JSON object")
    return document


def _get(stream: Stream, replica: str, path: str, deadline: float) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", "notebook"), ("Accept", "application/json"), ("Connection", "close")]
    request = connection.send(h11.Request(method="GET", target=path, headers=headers))
    end = connection.send(h11.EndOfMessage())
    stream.write((request or b"") + (end or b""), max(0.0, deadline - time.monotonic()))
    body = bytearray()
    try:
        while True:
            # Also while bytes arrive all the time, such as responses of the kind 100 without end.
            if time.monotonic() >= deadline:
                raise _broken(replica, "it did not answer in time")
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(stream.read(max(0.0, deadline - time.monotonic())))
            elif isinstance(event, h11.Response):
                if event.status_code != 200:
                    raise _broken(replica, f"its response has the status {event.status_code}")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > LONGEST:
                    raise _broken(replica, f"its response is longer than {LONGEST:,} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            elif not isinstance(event, h11.InformationalResponse):
                raise _broken(replica, "it has closed the connection")
    except h11.RemoteProtocolError as error:
        raise _broken(replica, str(error)) from None


def _broken(replica: str, why: str) -> ControlError:
    return Unreachable(messages.SERVER_UNUSABLE(name=replica, why=why))
