"""Readers that break their connections, on a real server: nothing is logged, and nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from jobs.live import consumers
from jobs.streams import store
from portal.asgi import application
from tests.jobs.live.frames import do
from tests.jobs.sockets import Headers, play
from tests.jobs.streams.conftest import Writer
from tests.waiting import soon

pytestmark = pytest.mark.django_db(transaction=True)

# Bytes of the sockets' buffers: a reader that reads nothing soon blocks the server.
SMALL = 4096


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[str, ServerState]]:
    """Serve the portal as ``manage.py serve`` does, with its connections in this event loop."""
    configuration = uvicorn.Config(
        application, ws="websockets-sansio", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    configuration.load()
    state = uvicorn.Server(configuration).server_state
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    protocol: Any = configuration.http_protocol_class
    server = await asyncio.get_running_loop().create_server(lambda: protocol(configuration, state, {}), sock=listening)
    async with server:
        yield f"127.0.0.1:{listening.getsockname()[1]}", state


async def joined(address: str, browser: Headers) -> ClientConnection:
    """Return the connection of a reader with small buffers."""
    host, _, port = address.rpartition(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    line.connect((host, int(port)))
    cookie = {"Cookie": dict(browser)[b"cookie"].decode()}
    url, origin = f"ws://{address}/ws/v1/stream", Origin(f"http://{address}")
    return await connect(url, sock=line, origin=origin, additional_headers=cookie, max_queue=1, compression=None)


def is_blocked(state: ServerState) -> bool:
    """Return whether the server waits for a reader of a websocket."""
    sockets = [one for one in state.connections if isinstance(one, WebSocketsSansIOProtocol)]
    return any(not one.writable.is_set() for one in sockets)


@pytest.mark.parametrize("seconds", [15.0, 0.01], ids=["frame", "frame and heartbeat"])
def test_a_reader_that_leaves_in_the_middle_is_no_error(
    writer: Writer,
    browser: Headers,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_SECONDS", seconds)
    lines = [(float(number), "stdout", "x" * 1000) for number in range(1, 501)]

    def write() -> None:
        store.append_logs(job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-0", first=1, lines=lines)

    async def scenario() -> None:
        await do(write)
        async with served() as (address, state):
            connection = await joined(address, browser)
            await connection.send(json.dumps({"op": "sub", "stream": "logs", "job": str(writer.job.pk)}))
            await soon("the server waits for the reader", lambda: is_blocked(state))
            connection.transport.abort()
            await soon("the socket is forgotten", lambda: not consumers._open_sockets)

    with caplog.at_level(logging.INFO):
        play(scenario)
        gc.collect()  # reports the errors of tasks that nobody awaited
    assert [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING] == []
