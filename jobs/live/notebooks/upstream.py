"""Connections over HTTP/1.1 to the servers of notebooks. They are kept for the next request to the same replica.

The server is code of users. What it sends is parsed with limits; a connection with bytes that belong to no response is
not used again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import h11

from jobs.control.streams import AsyncStream, address_of, open_stream
from jobs.messages import notebooks as messages
from jobs.notebooks.access import SOCKET, Target
from portal.common.errors import TooManyRequests

# Requests and websockets of this process to one notebook at a time, and connections that are kept for the next request.
OPEN_LIMIT, IDLE_LIMIT = 128, 8
# Connections to one agent that are being opened at a time: an agent ends the oldest above 16 without proof.
_OPENING_LIMIT = 4
# Shorter than the time after which servers close a connection that is not used.
IDLE_SECONDS = 20.0
_HEAD_BYTES = 64 * 1024
# The time limit of a server that does not take the bytes of a request.
SEND_SECONDS = 60.0

Key = tuple[str, str]
Event = h11.Event | type[h11.PAUSED]


class Broken(Exception):
    """The server has sent what is no response, or has ended the connection in the middle of one."""


class Connection:
    """One connection. ``used``: it has served a request before, so the server may have closed it since."""

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self.used = False

    async def send(self, event: h11.Event) -> None:
        """Send a part of a request. Raises ControlError, and h11.LocalProtocolError for an invalid request."""
        if data := self._http.send(event):
            await self._stream.write(data, SEND_SECONDS)

    async def receive(self, seconds: float) -> Event:
        """Return the next part of the response. Raises ControlError and Broken."""
        while True:
            try:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event  # type: ignore[return-value]  # NEED_DATA is excluded
                self._http.receive_data(await self._stream.read(seconds))
            except h11.RemoteProtocolError as error:
                raise Broken(str(error)) from None

    def is_reusable(self) -> bool:
        """Prepare the connection for the next request, and return whether that is possible."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        if self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        self.used = True
        return True

    async def close(self) -> None:
        await self._stream.close()


class Pool:
    """Connections of one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Key, list[Connection]] = defaultdict(list)
        self._open: Counter[Key] = Counter()
        self._opening: dict[Key, asyncio.Semaphore] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, target: Target, *, fresh: bool) -> Connection:
        """Return a connection, which the caller gives back or drops. ``fresh``: one that was not used before.

        Raises ControlError, and TooManyRequests.
        """
        key = _key(target)
        idle = self._idle.get(key)
        if idle and not fresh:
            self._count(key)
            return idle.pop()
        return Connection(await self.open(target))

    async def open(self, target: Target) -> AsyncStream:
        """Return a new stream to the server. It counts until ``closed``. Raises as ``take``."""
        key = _key(target)
        self._count(key)
        try:
            async with self._opening.setdefault(key, asyncio.Semaphore(_OPENING_LIMIT)):
                return await open_stream(target.ref, target.replica, address_of(socket=SOCKET))
        except BaseException:
            self._discount(key)
            raise

    async def give_back(self, target: Target, connection: Connection) -> None:
        """End the use of a connection, and keep it if another request can use it."""
        key = _key(target)
        if not connection.is_reusable() or len(self._idle[key]) >= IDLE_LIMIT:
            await self.drop(target, connection)
            return
        self._discount(key)
        self._idle[key].append(connection)
        asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire, key, connection)

    async def drop(self, target: Target, connection: Connection | AsyncStream) -> None:
        """Close a connection, or a stream of ``open``."""
        self._discount(_key(target))
        await connection.close()

    async def close(self) -> None:
        """Close the connections that are kept."""
        for key in list(self._idle):
            for connection in self._idle.pop(key, []):
                await connection.close()

    def _expire(self, key: Key, connection: Connection) -> None:
        if connection in self._idle.get(key, ()):
            self._idle[key].remove(connection)
            task = asyncio.ensure_future(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._forget(key)

    def _count(self, key: Key) -> None:
        if self._open[key] >= OPEN_LIMIT:
            raise TooManyRequests(messages.NOTEBOOK_BUSY(), retry_after=1)
        self._open[key] += 1

    def _discount(self, key: Key) -> None:
        self._open[key] -= 1
        self._forget(key)

    def _forget(self, key: Key) -> None:
        """Remove what is left of a notebook without connections."""
        if not self._open[key]:
            del self._open[key]
            if not self._idle.get(key):
                self._idle.pop(key, None)
                self._opening.pop(key, None)


def _key(target: Target) -> Key:
    return target.ref.attempt_id, target.replica
