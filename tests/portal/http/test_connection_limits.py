"""Limits on connections, with real sockets: slow heads, slow readers, unread bodies, many connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from pytest_django import Settings

from portal.common import trusted_proxies
from portal.http import connection_limits
from portal.http.connection_limits import LimitedHttpProtocol
from portal.http.direct_body import DirectBodyHttpProtocol

Talk = Callable[[tuple[str, int]], Awaitable[None]]
LARGE = 64 << 20
# Far below the limit of a test, far above the time of a small request on a loaded machine.
TINY = 0.7


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
    """/large answers with many bytes, /unread without reading the body, others with the length of the body."""
    body = b""
    if scope["path"] not in ("/large", "/unread"):
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/large":
        piece = bytes(1 << 20)
        for _ in range(LARGE // len(piece)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


def serve(talk: Talk, protocol: type[LimitedHttpProtocol] = LimitedHttpProtocol) -> None:
    """Run a conversation with a server of its own."""

    async def run() -> None:
        configuration = uvicorn.Config(
            app, http=protocol, lifespan="off", log_level="critical", ws="none", timeout_keep_alive=30
        )
        configuration.load()
        state = uvicorn.Server(configuration).server_state
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol(configuration, state, {}), "127.0.0.1", 0)
        async with server:
            await asyncio.wait_for(talk(server.sockets[0].getsockname()), 100)

    asyncio.run(run())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", TINY)
    monkeypatch.setattr(connection_limits, "WRITE_SECONDS", TINY)


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the exemption of this machine's address, which the tests use."""
    monkeypatch.setattr(connection_limits, "is_exempt", lambda client: False)


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, piece: bytes) -> bytes:
    """Send one byte at a time until the server closes the connection; return its answer."""
    answer = asyncio.create_task(reader.read())
    while not answer.done():
        writer.write(piece)
        await asyncio.wait({answer}, timeout=TINY / 10)
    writer.close()
    return b"" if answer.exception() else answer.result()


BEGINNINGS = {
    "nothing": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ", b"y"),
    "empty lines": (b"\r\n", b"\r\n"),
    "half of a second head": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX: ", b"y"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("protocol", [LimitedHttpProtocol, DirectBodyHttpProtocol])
@pytest.mark.parametrize(("beginning", "piece"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_head_that_does_not_end_in_its_time_ends_the_connection(
    beginning: bytes, piece: bytes, protocol: type[LimitedHttpProtocol]
) -> None:
    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(beginning)
        answer = await until_closed(reader, writer, piece)
        assert b"HTTP/1.1 408" in answer
        assert b"did not arrive in time" in answer

    serve(talk, protocol)


@pytest.mark.usefixtures("impatient")
def test_empty_lines_after_a_request_end_the_connection() -> None:
    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        assert b"408" in await until_closed(reader, writer, b"\r\n")

    serve(talk)


@pytest.mark.usefixtures("impatient")
def test_the_unread_rest_of_a_body_does_not_hold_the_connection() -> None:
    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
        assert (await until_closed(reader, writer, b"x")).startswith(b"HTTP/1.1 200")

    serve(talk)


@pytest.mark.usefixtures("impatient")
def test_an_unread_response_does_not_hold_the_connection() -> None:
    async def talk(address: tuple[str, int]) -> None:
        loop, lost = asyncio.get_running_loop(), asyncio.Event()
        made = LimitedHttpProtocol.connection_lost

        def noted(self: LimitedHttpProtocol, exc: Exception | None) -> None:
            made(self, exc)
            lost.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LimitedHttpProtocol, "connection_lost", noted)
            transport, _ = await loop.create_connection(asyncio.Protocol, *address)
            transport.pause_reading()
            transport.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            await lost.wait()
            transport.abort()

    serve(talk)


def test_an_answer_that_is_read_comes_whole_and_leaves_no_limit_behind() -> None:
    made: list[LimitedHttpProtocol] = []
    paused: list[bool] = []

    class Seen(LimitedHttpProtocol):
        def pause_writing(self) -> None:
            super().pause_writing()
            made.append(self)
            paused.append(self._writing is not None)

    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        left = LARGE
        while left > 0:
            left -= len(await reader.read(1 << 20))
        assert paused
        assert all(paused)
        assert made[0]._writing is None
        writer.close()

    serve(talk, Seen)


def test_a_slow_body_and_a_pause_between_requests_are_no_slow_heads() -> None:
    """Bodies have their own limits (``portal.http.body_limits``), and uvicorn limits pauses."""
    made: list[LimitedHttpProtocol] = []

    class Seen(LimitedHttpProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            made.append(self)
            super().connection_made(transport)
            assert self._waiting is not None

    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
            while not (made and made[0].cycle and not made[0].cycle.response_complete):
                await asyncio.sleep(0)
            assert made[0]._waiting is None
            writer.write(b"xx")
            await reader.readuntil(b"0\r\n\r\n")
            assert made[0]._waiting is None
        writer.close()

    serve(talk, Seen)


# --- Number of connections -------------------------------------------------------------------------------------------
async def opened(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Return a connection that has sent one request, and the beginning of the answer."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    return reader, writer, (await reader.readuntil(b"\r\n\r\n"))[9:12]


@pytest.mark.usefixtures("strange")
@pytest.mark.parametrize(("most", "per_address", "taken"), [(100, 3, 3), (8, 100, 6)])
def test_connections_beyond_a_limit_are_refused_until_others_end(
    settings: Settings, most: int, per_address: int, taken: int
) -> None:
    settings.CONNECTIONS, settings.CONNECTIONS_PER_ADDRESS = most, per_address

    async def talk(address: tuple[str, int]) -> None:
        answers = [await opened(address) for _ in range(taken + 2)]
        assert [status for *_, status in answers] == [b"200"] * taken + [b"503"] * 2
        for reader, writer, _ in answers:
            writer.close()
            await reader.read()
        statuses = []
        while b"200" not in statuses:  # the server notices the disconnect asynchronously
            reader, writer, status = await opened(address)
            statuses.append(status)
            writer.close()

    serve(talk)


def test_agents_and_proxies_may_have_many_connections(settings: Settings) -> None:
    settings.CONNECTIONS, settings.CONNECTIONS_PER_ADDRESS = 8, 1

    async def talk(address: tuple[str, int]) -> None:
        answers = [await opened(address) for _ in range(9)]
        assert [status for *_, status in answers] == [b"200"] * 8 + [b"503"]
        for _, writer, _ in answers:
            writer.close()

    serve(talk)


@pytest.mark.parametrize(
    ("client", "exempt"),
    [
        (None, True),
        (("127.0.0.1", 1), True),
        (("::1", 1), True),
        (("::ffff:127.0.0.1", 1), True),
        (("10.1.2.3", 1), True),
        (("192.0.2.7", 1), False),
        (("2001:db8::1", 1), False),
    ],
)
def test_exempt_addresses(settings: Settings, client: Any, exempt: bool) -> None:
    settings.TRUSTED_PROXIES = [trusted_proxies.network("10.0.0.0/8")]
    assert connection_limits.is_exempt(client) is exempt
