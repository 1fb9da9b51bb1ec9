"""A connection to the agent of a running replica: for one call, or as a stream of frames.

    with connect(ref, "trainer-0") as agent:
        answer = agent.call("ping")

``connect_async`` gives the same for a consumer of Channels. A connection carries one call; to make another, connect
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from jobs.backends.base import AttemptRef
from jobs.control.connecting import CONNECT_SECONDS, open_connection
from jobs.control.errors import ControlError, Refused, Unreachable
from jobs.messages import control as messages
from runtime.control import frames
from runtime.control.connection import Connection
from runtime.control.frames import Decoder, Frame
from runtime.errors import WireError

CALL_SECONDS = 10.0
SEND_SECONDS = 10.0
_LONGEST_TEXT = 500  # characters of an agent's message
_PIECE = 64 * 1024


def connect(ref: AttemptRef, replica: str, seconds: float = CONNECT_SECONDS) -> ControlConnection:
    """Connect to the agent. Raises ControlError."""
    return ControlConnection(replica, open_connection(ref, replica, seconds)[1])


class ControlConnection:
    """A proven connection. Every method raises ControlError; the connection is of no use after that."""

    def __init__(self, replica: str, connection: Connection) -> None:
        self.replica = replica
        self._connection = connection

    def call(self, name: str, timeout: float = CALL_SECONDS, **parameters: Any) -> dict[str, Any]:
        """Make the call and return its answer, within ``timeout`` seconds. Raises Refused if the agent refuses."""
        self.begin(name, **parameters)
        try:
            return _answer(self.replica, self._connection.receive_document(timeout))
        except WireError as error:
            raise _unreachable(self.replica, error) from error

    def begin(self, name: str, **parameters: Any) -> None:
        """Send the request of a call that is a stream of frames."""
        self.send(frames.of_document({**parameters, "call": name}))

    def send(self, frame: Frame, seconds: float = SEND_SECONDS) -> None:
        try:
            self._connection.send(frame, seconds)
        except WireError as error:
            raise _unreachable(self.replica, error) from error

    def receive(self, seconds: float) -> Frame:
        try:
            return self._connection.receive(seconds)
        except WireError as error:
            raise _unreachable(self.replica, error) from error

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def connect_async(ref: AttemptRef, replica: str, seconds: float = CONNECT_SECONDS) -> AsyncControlConnection:
    """Connect to the agent without blocking the event loop. Raises ControlError."""
    link, _ = await asyncio.to_thread(open_connection, ref, replica, seconds)
    reader, writer = await asyncio.open_connection(sock=link)
    return AsyncControlConnection(replica, reader, writer)


class AsyncControlConnection:
    """``ControlConnection`` for asyncio. One task may receive while another sends."""

    def __init__(self, replica: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.replica = replica
        self._reader, self._writer = reader, writer
        self._decoder = Decoder()

    async def call(self, name: str, timeout: float = CALL_SECONDS, **parameters: Any) -> dict[str, Any]:
        """Make the call and return its answer, within ``timeout`` seconds. Raises Refused if the agent refuses."""
        await self.begin(name, **parameters)
        frame = await self.receive(timeout)
        try:
            return _answer(self.replica, frame.document())
        except WireError as error:
            raise _unreachable(self.replica, error) from error

    async def begin(self, name: str, **parameters: Any) -> None:
        """Send the request of a call that is a stream of frames."""
        await self.send(frames.of_document({**parameters, "call": name}))

    async def send(self, frame: Frame, seconds: float = SEND_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(frames.encode(frame))
                await self._writer.drain()
        except (OSError, WireError) as error:  # TimeoutError is an OSError
            raise _unreachable(self.replica, error) from error

    async def receive(self, seconds: float | None = None) -> Frame:
        """Return the next frame; None: wait as long as the connection lasts."""
        try:
            async with asyncio.timeout(seconds):
                while (frame := self._decoder.next_frame()) is None:
                    data = await self._reader.read(_PIECE)
                    if not data:
                        raise ConnectionError("the agent closed the connection")
                    self._decoder.feed(data)
                return frame
        except (OSError, WireError) as error:
            raise _unreachable(self.replica, error) from error

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        except OSError:
            pass
        finally:
            # Bytes that the agent does not take would keep the socket open for ever.
            self._writer.transport.abort()


def _unreachable(replica: str, error: Exception) -> ControlError:
    why = str(error) or "it did not answer in time"
    return Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=why))


def _answer(replica: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("ok") is True:
        return {name: value for name, value in answer.items() if name != "ok"}
    why = str(answer.get("message", ""))[:_LONGEST_TEXT]
    raise Refused(str(answer.get("code", ""))[:100], messages.AGENT_REFUSED(name=replica, why=why))
