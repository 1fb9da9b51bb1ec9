"""Clients of the portal's websocket, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from jobs.live import consumers
from jobs.streams import tailer
from portal.asgi import application

HOST = b"127.0.0.1"
Headers = list[tuple[bytes, bytes]]
Frame = dict[str, Any]


def headers_of(client: Client, origin: bytes = b"http://" + HOST) -> Headers:
    cookie = client.cookies.get(settings.SESSION_COOKIE_NAME)
    session = [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie.value}".encode())] if cookie else []
    return [(b"host", HOST), (b"origin", origin), *session]


class Socket:
    """A client of the ASGI application."""

    def __init__(self, headers: Headers, path: str = "/ws/v1/stream") -> None:
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "subprotocols": [],
        }
        self._link = ApplicationCommunicator(application, scope)

    async def open(self) -> None:
        await self._link.send_input({"type": "websocket.connect"})
        assert (await self._link.receive_output(timeout=10))["type"] == "websocket.accept"

    async def ask(self, **body: Any) -> None:
        await self.send(json.dumps(body, default=str))

    async def send(self, text: str) -> None:
        await self._link.send_input({"type": "websocket.receive", "text": text})

    async def frame(self) -> Frame:
        message = await self._link.receive_output(timeout=10)
        assert message["type"] == "websocket.send", message
        found: Frame = json.loads(message["text"])
        return found

    async def closed(self) -> int:
        message = await self._link.receive_output(timeout=10)
        assert message["type"] == "websocket.close", message
        assert message["reason"]
        return int(message["code"])

    async def answer(self) -> str:
        """Return the next answer as one word: the kind of frame, the code of a refusal, or the code of the close."""
        message = await self._link.receive_output(timeout=10)
        if message["type"] == "websocket.close":
            return str(message["code"])
        frame: Frame = json.loads(message["text"])
        return str(frame["code"] if frame["t"] == "error" else frame["t"])

    async def silent(self) -> bool:
        return await self._link.receive_nothing(timeout=0.1)

    async def leave(self) -> None:
        await self._link.send_input({"type": "websocket.disconnect", "code": 1006})
        await self._link.wait(timeout=10)


@contextlib.asynccontextmanager
async def connected(headers: Headers, path: str = "/ws/v1/stream") -> AsyncIterator[Socket]:
    socket = Socket(headers, path)
    await socket.open()
    try:
        yield socket
    finally:
        await socket.leave()


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on its own event loop, with its own tailer."""

    consumers._open_sockets.clear()

    async def run() -> None:
        try:
            await asyncio.wait_for(scenario(), 60)
        finally:
            tailer.tailer().close()

    asyncio.run(run())
    assert not consumers._open_sockets


def bearer(secret: str) -> Headers:
    return [(b"host", HOST), (b"authorization", f"Bearer {secret}".encode())]
