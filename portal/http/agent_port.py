"""Separate ports for people and for agents (``REGATTA_AGENT_PORT``).

With a port of its own for agents, that port serves ``/ingest/`` and nothing else, and the first port does not serve
``/ingest/``. Networks can then admit pods of jobs to the one and the ingress controller to the other. No proxy is in
front of the agents' port, so headers that claim another address or encryption are removed there, from every caller.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from portal.common.messages import requests as messages
from portal.common.problems import PROBLEM_TYPE, problem

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]

_INGEST = "/ingest/"
_FORWARDING = (b"forwarded", b"x-forwarded-", b"x-real-ip")
# Not ``not_found``: an agent takes that for the end of its attempt. This one it sends again.
_CODE = "wrong_port"


def separated(application: Application, agent_port: int) -> Application:
    """Return the application with separate ports; with ``agent_port`` 0 all is served on the one port."""
    if not agent_port:
        return application

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        is_agents = _port(scope) == agent_port
        if scope["path"].startswith(_INGEST) != is_agents:
            await _refuse(scope, receive, send)
        else:
            await application(_unforwarded(scope) if is_agents else scope, receive, send)

    return serve


def _port(scope: Scope) -> int | None:
    """Return the port of the socket that accepted the connection. Nothing that a caller sends changes it."""
    server = scope.get("server")
    return server[1] if server else None


def _unforwarded(scope: Scope) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(_FORWARDING)]
    return {**scope, "headers": headers}


async def _refuse(scope: Scope, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()  # the request to connect; a close before its acceptance is a 403
        await send({"type": "websocket.close"})
        return
    body = json.dumps(problem(_CODE, HTTPStatus.NOT_FOUND, messages.WRONG_PORT())).encode()
    headers = [(b"content-type", PROBLEM_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": HTTPStatus.NOT_FOUND, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
