"""A request whose head does not end is refused before it fills the memory; other requests are unaffected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from portal.http.header_limits import HEAD_LIMIT, BoundedHttpProtocol

PIECE = b"x" * 16_384
FAR_TOO_MUCH = 64 * HEAD_LIMIT
BEGINNINGS = {
    "line": b"GET /",
    "one header": b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
    "trailer": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    "chunk extension": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=",
}


async def count_body(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
    """Answers with the number of bytes of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


async def talk(talk_over: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Run a conversation with a server of its own."""
    configuration = uvicorn.Config(
        count_body, http=BoundedHttpProtocol, lifespan="off", log_level="critical", ws="none"
    )
    configuration.load()
    state = uvicorn.Server(configuration).server_state
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttpProtocol(configuration, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(talk_over(reader, writer), 60)
        writer.close()


async def send_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, beginning: bytes) -> tuple[int, bytes]:
    """Send without end until an answer arrives; return how much was sent, and the answer, if it could be read."""
    answer = asyncio.create_task(reader.read())
    sent, piece = 0, beginning
    while sent < FAR_TOO_MUCH and not answer.done():
        writer.write(piece)
        sent, piece = sent + len(piece), PIECE
        await asyncio.wait({answer}, timeout=0.02)
    assert answer.done(), f"{sent} bytes were taken"
    return sent, b"" if answer.exception() else answer.result()


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_head_without_end_is_refused(beginning: bytes) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent, _ = await send_on(reader, writer, beginning)
        assert sent > HEAD_LIMIT

    asyncio.run(talk(conversation))


def test_the_refusal_has_a_reason() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, answer = await send_on(reader, writer, BEGINNINGS["one header"])
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"too long" in answer

    asyncio.run(talk(conversation))


def test_long_bodies_and_many_requests_on_a_connection_are_taken() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(20):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (4 * HEAD_LIMIT))
            writer.write(bytes(4 * HEAD_LIMIT))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert b"%d" % (4 * HEAD_LIMIT) in await reader.readuntil(b"0\r\n\r\n")

    asyncio.run(talk(conversation))


def test_a_long_but_not_too_long_head_is_taken() -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"y" * (HEAD_LIMIT - 100) + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    asyncio.run(talk(conversation))
