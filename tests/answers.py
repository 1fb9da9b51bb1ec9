"""Streamed responses, as a test reads them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync


def whole(answer: Any) -> bytes:
    """Return the complete body of a response that streams from a thread."""

    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(read)()
