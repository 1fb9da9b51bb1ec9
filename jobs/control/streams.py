"""Byte streams to servers in running replicas: the agent's call ``connect``.

The bytes come from user code. A stream holds one frame at most, at most 1 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.backends.base import AttemptRef
from jobs.control.connection import AsyncControlConnection, ControlConnection, connect, connect_async
from jobs.control.errors import Unreachable
from jobs.messages import control as messages
from runtime.control import frames
from runtime.control.frames import Frame, Kind
from runtime.errors import WireError

PIECE = 64 * 1024
SEND_SECONDS = 60.0

_END = frames.of_document({"t": "end"})


def address_of(socket: str | None = None, port: int | None = None) -> Mapping[str, Any]:
    """Return the parameters of the call, for a Unix socket of the replica's temporary directory or for a port."""
    return {"port": port} if socket is None else {"socket": socket}


class Stream:
    """A stream that blocks. Every method raises ControlError; it is of no use after that."""

    def __init__(self, ref: AttemptRef, replica: str, address: Mapping[str, Any], seconds: float) -> None:
        self._agent: ControlConnection = connect(ref, replica, seconds)
        try:
            self._agent.call("connect", seconds, **address)
        except BaseException:
            self._agent.close()
            raise

    def write(self, data: bytes, seconds: float) -> None:
        """Send at most PIECE bytes."""
        self._agent.send(Frame(Kind.BYTES, data), seconds)

    def read(self, seconds: float) -> bytes:
        """Return the next bytes; none at the end."""
        return _bytes_of(self._agent.replica, self._agent.receive(seconds))

    def close(self) -> None:
        self._agent.close()


class AsyncStream:
    """A stream for asyncio. One task may read while another writes. Every method raises ControlError."""

    def __init__(self, agent: AsyncControlConnection) -> None:
        self._agent = agent

    async def write(self, data: bytes, seconds: float = SEND_SECONDS) -> None:
        """Send the bytes. Waits while the server in the replica does not read."""
        for start in range(0, len(data), PIECE):
            await self._agent.send(Frame(Kind.BYTES, data[start : start + PIECE]), seconds)

    async def read(self, seconds: float | None = None) -> bytes:
        """Return the next bytes; none at the end. None: wait as long as the stream lasts."""
        return _bytes_of(self._agent.replica, await self._agent.receive(seconds))

    async def end(self) -> None:
        """End the direction to the server; the other one goes on."""
        await self._agent.send(_END)

    async def close(self) -> None:
        await self._agent.close()


async def open_stream(ref: AttemptRef, replica: str, address: Mapping[str, Any]) -> AsyncStream:
    """Connect to a server in the replica. Raises ControlError; Refused with the code ``not_listening``."""
    agent = await connect_async(ref, replica)
    try:
        await agent.call("connect", **address)
    except BaseException:
        await agent.close()
        raise
    return AsyncStream(agent)


def _bytes_of(replica: str, frame: Frame) -> bytes:
    if frame.kind is Kind.BYTES:
        return frame.payload
    try:
        if frame.document().get("t") == "end":
            return b""
        why = "it has sent an unknown frame"
    except WireError as error:
        why = str(error)
    raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=why))
