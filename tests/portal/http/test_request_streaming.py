"""Streamed bodies: the view is called before the first byte, and a fast sender is slowed down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from portal.http import request_streaming
from portal.http.request_streaming import WAITING_LIMIT, Body, Interrupted, is_streamed

PART = "/api/v1/datasets/team/mine/versions/1/files/7/parts/0"


class Sender:
    """Sends pieces, then a disconnect; counts how many were taken."""

    def __init__(self, pieces: list[bytes], *, ends: bool = True) -> None:
        self.messages = [
            {"type": "http.request", "body": piece, "more_body": index + 1 < len(pieces) or not ends}
            for index, piece in enumerate(pieces)
        ]
        self.given = 0
        self.leave = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        if self.given < len(self.messages):
            self.given += 1
            return self.messages[self.given - 1]
        await self.leave.wait()
        return {"type": "http.disconnect"}


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 100))


async def read_all(body: Body) -> bytes:
    pieces: list[bytes] = []
    while piece := await asyncio.to_thread(body.read, 3):
        pieces.append(piece)
    return b"".join(pieces)


def test_the_body_is_read_as_it_was_sent() -> None:
    async def test() -> None:
        assert await read_all(Body(Sender([b"abcde", b"", b"fg", b"h"]))) == b"abcdefgh"

    in_loop(test)


def test_a_fast_sender_is_held_back_until_somebody_reads() -> None:
    async def test() -> None:
        sender = Sender([bytes(WAITING_LIMIT)] * 8)
        body = Body(sender)
        for _ in range(50):
            await asyncio.sleep(0)
        assert sender.given == 2
        assert len(await read_all_in_bulk(body)) == 8 * WAITING_LIMIT

    in_loop(test)


async def read_all_in_bulk(body: Body) -> bytes:
    return b"".join([piece async for piece in bulk(body)])


async def bulk(body: Body) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(body.read, 1 << 22):
        yield piece


def test_a_sender_that_leaves_in_the_middle_is_noticed_by_the_reader() -> None:
    async def test() -> None:
        sender = Sender([b"half"], ends=False)
        body = Body(sender)
        assert await asyncio.to_thread(body.read, 4) == b"half"
        sender.leave.set()
        with pytest.raises(Interrupted, match="has gone"):
            await asyncio.to_thread(body.read, 4)
        assert (await body())["type"] == "http.disconnect"

    in_loop(test)


def test_a_silent_sender_counts_as_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_streaming, "SILENCE_SECONDS", 0.01)

    async def test() -> None:
        with pytest.raises(Interrupted, match="silent"):
            await asyncio.to_thread(Body(Sender([b""], ends=False)).read, 4)

    in_loop(test)


def test_a_reader_does_not_wait_for_more_once_the_request_has_ended() -> None:
    """The server cancels requests in progress at its shutdown, and their threads cannot be cancelled."""

    async def test() -> None:
        body = Body(Sender([b"half"], ends=False))
        reading = asyncio.create_task(asyncio.to_thread(body.read, 8))
        body.close()
        assert await asyncio.wait_for(reading, 60) == b"half"
        with pytest.raises(Interrupted):
            await asyncio.to_thread(body.read, 8)

    in_loop(test)


def test_small_pieces_are_handed_over_together() -> None:
    async def test() -> None:
        body = Body(Sender([b"ab", b"cd", b"ef"], ends=False))
        assert await asyncio.to_thread(body.read, 5) == b"abcde"

    in_loop(test)


def test_a_slow_sender_that_is_never_silent_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent of how often the timeout passes before a piece is full."""

    async def test() -> None:
        slow = Sender([b"a"], ends=False)
        body = Body(slow)
        waited: list[float | None] = []

        def wait(seconds: float | None = None) -> bool:
            waited.append(seconds)
            body._buffer.put(b"bc"[len(waited) - 1 : len(waited)])
            return False  # the reader was not woken before the timeout

        while slow.given == 0 or not body._buffer._arrived:
            await asyncio.sleep(0)
        monkeypatch.setattr(body._buffer._changed, "wait", wait)
        assert body.read(3) == b"abc"
        assert waited == [request_streaming.SILENCE_SECONDS] * 2

    in_loop(test)


@pytest.mark.parametrize(
    ("method", "path", "streamed"),
    [("PUT", PART, True), ("PUT", PART + "/", True), ("POST", PART, False), ("PUT", PART[:-8], False)],
)
def test_only_parts_are_streamed(method: str, path: str, streamed: bool) -> None:
    assert is_streamed({"method": method, "path": path}) is streamed
