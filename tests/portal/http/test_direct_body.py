"""Bodies that are read from the socket itself: they arrive unchanged, and the connection stays usable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from portal.http import request_streaming
from portal.http.connection_limits import LimitedHttpProtocol
from portal.http.direct_body import LEAST, UVICORN_SERIES, DirectBodyHttpProtocol, http_protocol
from portal.http.request_streaming import DIRECT_BODY, Body, Interrupted
from tests.waiting import soon

CONTENT = bytes(range(256)) * 8192  # 2 MiB
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Action = Callable[[Body], Awaitable[bytes]]


@dataclass
class Application:
    """Runs a function with each body, and answers with its result."""

    action: Action
    lent: list[bool] = field(default_factory=list)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        def lend() -> Any:
            found = scope["extensions"][DIRECT_BODY]()
            self.lent.append(found is not None)
            return found

        body = Body(receive, lend)
        try:
            answer = await self.action(body)
        except Interrupted as error:
            answer = str(error).encode()
        finally:
            body.close()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": answer})


@contextlib.asynccontextmanager
async def connected(
    application: Any, protocol: type[LimitedHttpProtocol] = DirectBodyHttpProtocol
) -> AsyncIterator[tuple[Reader, Writer]]:
    configuration = uvicorn.Config(
        application,
        http=protocol,
        lifespan="off",
        log_level="critical",
        ws="none",
    )
    configuration.load()
    state = uvicorn.Server(configuration).server_state
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(configuration, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()


def run(action: Action, talk: Callable[[Reader, Writer], Awaitable[None]]) -> Application:
    application = Application(action)

    async def conversation() -> None:
        async with connected(application) as (reader, writer):
            await asyncio.wait_for(talk(reader, writer), 60)

    asyncio.run(conversation())
    return application


def request(content: bytes, *headers: bytes) -> bytes:
    errors_seen = b"".join(header + b"\r\n" for header in headers or (b"Content-Length: %d" % len(content),))
    return b"PUT / HTTP/1.1\r\nHost: a\r\n" + errors_seen + b"\r\n" + content


async def answer(reader: Reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


async def read_all(body: Body) -> bytes:
    pieces: list[bytes] = []
    while piece := await asyncio.to_thread(body.read, 100_000):
        pieces.append(piece)
    return b"".join(pieces)


async def read_little(body: Body) -> bytes:
    return await asyncio.to_thread(body.read, 10)


async def read_into_the_middle(body: Body) -> bytes:
    for _ in range(5):
        await asyncio.to_thread(body.read, 100_000)
    return b"enough"


def test_a_long_body_is_lent_and_comes_as_it_was_sent() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(request(CONTENT))
        assert await answer(reader) == CONTENT

    assert run(read_all, talk).lent == [True]


def test_the_connection_goes_on_after_it() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        for number in range(1, 6):
            writer.write(request(CONTENT[number:]))
            assert await answer(reader) == CONTENT[number:]

    assert run(read_all, talk).lent == [True] * 5


@pytest.mark.invariant("After a body that is read straight from the socket, the connection serves its next request.")
@pytest.mark.parametrize("action", [read_little, read_into_the_middle])
def test_a_reader_that_stops_early_leaves_a_usable_connection(action: Action) -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        for _ in range(3):
            writer.write(request(CONTENT))
            assert await answer(reader) in (CONTENT[:10], b"enough")

    assert run(action, talk).lent == [True] * 3


@pytest.mark.invariant("After a body that is read straight from the socket, the connection serves its next request.")
def test_a_request_that_follows_at_once_is_not_taken_for_the_body() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(request(CONTENT) + request(b"short") + request(CONTENT))
        assert [await answer(reader) for _ in range(3)] == [CONTENT, b"short", CONTENT]

    run(read_all, talk)


@pytest.mark.parametrize(
    "sent",
    [
        request(b"x" * (LEAST - 1)),
        request(b"4000\r\n" + b"x" * 0x4000 + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
    ],
    ids=["short", "of unknown length"],
)
def test_short_bodies_and_those_of_unknown_length_pass_through_the_loop(sent: bytes) -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(sent)
        assert set(await answer(reader)) == set(b"x")

    assert True not in run(read_all, talk).lent


def test_a_sender_that_leaves_in_the_middle_is_noticed() -> None:
    errors_seen: list[str] = []

    async def action(body: Body) -> bytes:
        try:
            return await read_all(body)
        except Interrupted as error:
            errors_seen.append(str(error))
            raise

    async def talk(_reader: Reader, writer: Writer) -> None:
        writer.write(request(CONTENT[:-1], b"Content-Length: %d" % len(CONTENT)))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await soon("the portal has noticed", lambda: errors_seen)

    run(action, talk)
    assert errors_seen == ["The sender has gone."]


def test_a_silent_sender_counts_as_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_streaming, "SILENCE_SECONDS", 0.1)

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(request(CONTENT[:-1], b"Content-Length: %d" % len(CONTENT)))
        assert await answer(reader) == b"The sender was silent for too long."

    run(read_all, talk)


def test_a_dropped_request_wakes_its_reader_and_closes_the_connection() -> None:
    async def action(body: Body) -> bytes:
        reading = asyncio.create_task(read_all(body))
        await soon("the thread reads from the connection", lambda: body._lent is not None and body._lent._reading)
        body.close()
        with pytest.raises(Interrupted):
            await reading
        return b""

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(request(CONTENT[:-1], b"Content-Length: %d" % len(CONTENT)))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    run(action, talk)


# --- Fallback --------------------------------------------------------------------------------------------------------
def test_the_installed_uvicorn_is_of_the_tested_series() -> None:
    assert http_protocol(direct=True) is DirectBodyHttpProtocol


@pytest.mark.parametrize("version", ["0.53.9", "0.55.0", "0.540.0", "1.0", "1", ""])
def test_bodies_pass_through_the_event_loop_with_another_uvicorn(version: str) -> None:
    assert http_protocol(direct=True, version=version) is LimitedHttpProtocol


def test_the_setting_turns_direct_bodies_off() -> None:
    assert http_protocol(direct=False, version=f"{UVICORN_SERIES}.0") is LimitedHttpProtocol


def test_a_large_body_arrives_without_the_offer_of_the_protocol() -> None:
    received: list[bytes] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert DIRECT_BODY not in (scope.get("extensions") or {})
        body = Body(receive)
        while piece := await asyncio.to_thread(body.read, 1 << 20):
            received.append(piece)
        body.close()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def test() -> None:
        protocol = http_protocol(direct=False)
        async with connected(application, protocol) as (reader, writer):
            writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(CONTENT) + CONTENT)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    asyncio.run(test())
    assert b"".join(received) == CONTENT
