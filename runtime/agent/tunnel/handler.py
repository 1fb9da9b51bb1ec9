"""The call ``connect``: a byte stream to a server in the replica.

``{"socket": name}`` names a Unix socket in the temporary directory of the replica, ``{"port": number}`` a TCP port on
its loopback, in its network namespace. Answers ``{"ok": true}``; then bytes follow in both directions (``relay``).
Refusals: ``invalid``, ``not_listening``, and ``no_user_code`` for a replica that runs only code of the platform.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from runtime.agent.control.call import Call, Refusal
from runtime.agent.tunnel import opening
from runtime.agent.tunnel.relay import Relay
from runtime.messages import terminal as messages

ANSWER_SECONDS = 10.0
_PORTS = range(1, 2**16)


def connect(call: Call) -> None:
    """Connect, then pass bytes on until the stream has ended. Raises Refusal."""
    if not call.settings.runs_user_code:
        raise Refusal("no_user_code", messages.NO_SERVERS())
    with _opened(call) as link:
        call.connection.send_document({"ok": True}, ANSWER_SECONDS)
        Relay(call.connection, link).run()


def _opened(call: Call) -> socket.socket:
    name, port = _address(call.request)
    try:
        if name:
            return opening.unix_socket(call.settings.temporary, name)
        return opening.tcp_socket(call.settings.network, port)
    except OSError:
        raise Refusal("not_listening", messages.NOT_LISTENING(address=name or port)) from None


def _address(request: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name of a socket, or a port. Raises Refusal."""
    name, port = request.get("socket"), request.get("port")
    if isinstance(name, str) and port is None and opening.NAME.fullmatch(name):
        return name, 0
    if type(port) is int and name is None and port in _PORTS:
        return "", port
    raise Refusal("invalid", messages.CONNECTION_INVALID())
