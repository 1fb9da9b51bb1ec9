"""Streaming of request bodies that are too large to be buffered before a view sees them.

Other bodies are read before a view is called, within the limits of ``portal.http.body_limits``. For the routes below
the view is called at once, so that it can refuse before bytes arrive. It reads the body as it arrives: a few pieces
wait in memory, then the client is slowed down. The event loop only passes pieces on. The reader runs in a thread and is
woken only when all that it requested has arrived: passing a small piece between two threads costs more than the piece.
When the server can lend the rest of a body (``portal.http.direct_body``), the reader takes it from the socket.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from portal.common.postgresql.returning import return_connections
from portal.http.body_limits import ANONYMOUS_LIMIT, Message, Receive, content_length

# (method, path) of the requests that are read as they arrive.
STREAMED = (
    ("PUT", re.compile(r"/api/v1/datasets/[^/]+/[^/]+/versions/\d+/files/\d+/parts/\d+/?")),
    ("POST", re.compile(r"/ingest/v1/attempts/[^/]+/artifacts/?")),
)
# Bodies of these are read as they arrive when they exceed the limit of anonymous callers: their views check the token
# first.
STREAMED_IF_LARGE = ("POST", re.compile(r"/ingest/v1/.*"))
WAITING_LIMIT = 1 << 20  # bytes that wait to be read
# A client that sends nothing for so many seconds counts as disconnected, even when the network has not noticed.
SILENCE_SECONDS = 60.0
# The extension of a scope that lends the rest of a body: a call that returns one, or None.
DIRECT_BODY = "regatta.straight"


class Interrupted(OSError):
    """The client disconnected before the end of the body."""


class Lent(Protocol):
    """The rest of a body as a server lends it: ``left`` bytes."""

    left: int

    def read(self, size: int) -> bytes: ...

    def release(self) -> None: ...


def lends_nothing() -> None:
    return None


class PieceBuffer:
    """The pieces of a body that have arrived and wait for its reader, and the rest of it once a server has lent that.

    The event loop calls ``put`` and ``lend``, one thread calls ``read``. Pieces are read before the rest. When more
    than ``WAITING_LIMIT`` bytes wait, the reader's thread calls ``on_space`` once as soon as that is over. It calls
    ``on_lent_read`` with the rest when it has read all of that.
    """

    def __init__(self, on_space: Callable[[], object], on_lent_read: Callable[[Lent], object]) -> None:
        self._on_space = on_space
        self._on_lent_read = on_lent_read
        self._changed = threading.Condition()
        self._direct: Lent | None = None  # while some of it is left
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._requested = 1  # bytes for which the reader waits
        self._arrived = 0  # bytes so far
        self._held_back = False
        self._ended = False
        self._disconnected = False

    def lend(self, lent: Lent) -> None:
        """Have the reader take the rest from ``lent``."""
        with self._changed:
            self._direct = lent
            self._changed.notify()

    def put(self, piece: bytes, *, ended: bool = False, disconnected: bool = False) -> int:
        """Add a piece, the end of the body, or that the client has disconnected. Return how many bytes wait now."""
        with self._changed:
            if piece:
                self._pieces.append(piece)
                self._waiting += len(piece)
                self._arrived += len(piece)
            self._ended |= ended
            self._disconnected |= disconnected
            if self._waiting > WAITING_LIMIT:
                self._held_back = True
            if self._is_enough():
                self._changed.notify()
            return self._waiting

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, at most ``WAITING_LIMIT``; fewer at the end or from a lent rest, none after the end.

        Raises Interrupted.
        """
        with self._changed:
            self._requested = min(size, WAITING_LIMIT) if size >= 0 else WAITING_LIMIT
            self._wait_for_enough()
            lent = None if self._pieces or not self._requested else self._direct
            if lent is None:
                return self._read_waiting()
        return self._read_lent(lent)

    def _read_waiting(self) -> bytes:
        if self._disconnected and not self._pieces and not self._ended:
            raise Interrupted("The sender has gone.")
        taken = self._take(self._requested)
        if self._held_back and self._waiting <= WAITING_LIMIT:
            self._held_back = False
            self._on_space()
        return taken

    def _read_lent(self, lent: Lent) -> bytes:
        piece = lent.read(self._requested)
        if not lent.left:
            self._direct = None
            self._on_lent_read(lent)
        return piece

    def _is_enough(self) -> bool:
        return self._waiting >= self._requested or self._ended or self._disconnected or self._direct is not None

    def _wait_for_enough(self) -> None:
        """Wait for the requested bytes. Raises Interrupted when nothing arrives any more; a slow client may take its
        time."""
        while not self._is_enough():
            before = self._arrived
            if not self._changed.wait(SILENCE_SECONDS) and self._arrived == before:
                raise Interrupted("The sender was silent for too long.")

    def _take(self, size: int) -> bytes:
        taken: list[bytes] = []
        left = size
        while self._pieces and left > 0:
            piece = self._pieces.popleft()
            if len(piece) > left:
                self._pieces.appendleft(piece[left:])
                piece = piece[:left]
            taken.append(piece)
            left -= len(piece)
        found = b"".join(taken)
        self._waiting -= len(found)
        return found


class Body:
    """A request body that is still arriving: a file for the view, and a ``receive`` for Django.

    ``lend`` is called for the rest of it while more is to come.

    One thread calls ``read``; the event loop calls everything else.
    """

    def __init__(self, receive: Receive, lend: Callable[[], Lent | None] = lends_nothing) -> None:
        self._receive = receive
        self._lend = lend
        self._lent: Lent | None = None
        self._returned = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._space = asyncio.Event()
        self._left = asyncio.Event()
        self._buffer = PieceBuffer(
            on_space=partial(self._loop.call_soon_threadsafe, self._space.set),
            on_lent_read=self._schedule_release,
        )
        self._pump = asyncio.create_task(self._fetch())

    async def __call__(self) -> Message:
        """Wait for the disconnect of the client, the only message after the body."""
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _fetch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._buffer.put(b"", disconnected=True)
                self._left.set()
                return
            more = bool(message.get("more_body", False))
            if self._buffer.put(message.get("body", b""), ended=not more) > WAITING_LIMIT:
                # The buffer has the event loop set it, which cannot happen before the wait begins.
                self._space.clear()
                await self._space.wait()
            if more and self._lent is None and (lent := self._lend()) is not None:
                self._borrow(lent)
                await self._returned.wait()

    def _borrow(self, lent: Lent) -> None:
        self._lent = lent
        self._buffer.lend(lent)

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes like ``PieceBuffer.read``. Raises Interrupted."""
        return_connections()
        return self._buffer.read(size)

    def close(self) -> None:
        """End the request; data that still arrives is dropped."""
        self._loop.call_soon_threadsafe(self._end)

    def _schedule_release(self, lent: Lent) -> None:
        """Return ``lent`` to the server from the event loop. Any thread may call it."""
        self._loop.call_soon_threadsafe(_release, self._returned, lent)

    def _end(self) -> None:
        self._pump.cancel()
        self._buffer.put(b"", disconnected=True)  # a thread may still read, when the server shuts down
        if self._lent is not None:
            _release(self._returned, self._lent)


def _release(returned: asyncio.Event, lent: Lent) -> None:
    lent.release()
    returned.set()


def is_upload(scope: Message) -> bool:
    """Return whether the request sends a file, which may take minutes."""
    return any(_fits(scope, route) for route in STREAMED)


def is_streamed(scope: Message) -> bool:
    """Return whether the request's body is read as it arrives."""
    return is_upload(scope) or (_fits(scope, STREAMED_IF_LARGE) and (content_length(scope) or 0) > ANONYMOUS_LIMIT)


def _fits(scope: Message, route: tuple[str, re.Pattern[str]]) -> bool:
    method, path = route
    return scope["method"] == method and path.fullmatch(scope["path"]) is not None
