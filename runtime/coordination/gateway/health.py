"""HTTP server that answers probes: ``GET /healthz``."""

from __future__ import annotations

import asyncio
import contextlib

_SECONDS = 5.0
_MOST_BYTES = 4096


async def serve(place: str) -> asyncio.Server:
    """Listen on ``host:port``. Raises OSError."""
    host, _, port = place.rpartition(":")
    return await asyncio.start_server(_answer, host.strip("[]"), int(port), limit=_MOST_BYTES)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            request = await reader.readline()
            found = request.split(b" ")[:2] == [b"GET", b"/healthz"]
            status, body = ("200 OK", "ok\n") if found else ("404 Not Found", "GET /healthz\n")
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
            await writer.drain()
    writer.close()
