"""Small HTTP/1.1 client with one kept connection, for thousands of simulated agents and browsers in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

TIMEOUT_SECONDS = 30.0


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """Connection to one web process. Not for concurrent requests."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        self._port = port
        own = {"Host": f"127.0.0.1:{port}", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in own.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request and return its answer. Raises OSError, also if there is no answer in time."""
        content = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}{kind}Content-Length: {len(content)}\r\n\r\n"
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._exchange(head.encode() + content)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise ConnectionError(f"no answer from port {self._port}: {type(error).__name__}") from error

    async def _exchange(self, request: bytes) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status, fields = int(head[9:12]), dict(_fields(head))
        if fields.get(b"transfer-encoding") == b"chunked":
            body = await _chunks(reader)
        else:
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        if fields.get(b"connection") == b"close":
            self.close()
        return Answer(status, body)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _fields(head: bytes) -> list[tuple[bytes, bytes]]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return [(name.strip(), value.strip()) for name, _, value in lines]


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)
