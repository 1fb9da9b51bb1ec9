"""What a test does on a socket while the loop runs, and what frames contain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from jobs.streams import tailer
from tests.jobs.sockets import Frame, Socket


def do(function: Callable[..., Any], *given: Any) -> Awaitable[Any]:
    """Run a function that uses the database while the loop runs."""
    return tailer.in_thread(function, *given)


def seqs(frame: Frame) -> list[int]:
    return [entry["seq"] for entry in frame.get("lines", frame.get("points", []))]


async def collect(socket: Socket, upto: int) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < upto:
        found += seqs(await socket.frame())
    return found
