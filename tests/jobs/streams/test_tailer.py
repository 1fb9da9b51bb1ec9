"""Followers of one event loop: when they read, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from jobs.streams import tailer
from jobs.streams.tailer import Tailer, Watcher

pytestmark = pytest.mark.django_db(transaction=True)


class PatientBell:
    """Remembers how long it was to be waited for, and rings when the test says so."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.waiting = asyncio.Event()
        self.rung = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        self.timeouts.append(timeout)
        self.waiting.set()
        await self.rung.wait()
        self.rung.clear()
        return True


def test_a_state_that_does_not_change_is_read_once_and_then_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailer, "STATE_SPACING_SECONDS", 0.0)
    reads: list[int] = []

    def read() -> tuple[Hashable, Any]:
        reads.append(1)
        return 1, "state"

    async def story() -> list[float]:
        bell = PatientBell()
        task = asyncio.create_task(Watcher("status:x", read).run(bell))  # type: ignore[arg-type]
        await bell.waiting.wait()
        assert len(reads) == 1
        bell.waiting.clear()
        bell.rung.set()
        await bell.waiting.wait()
        assert len(reads) == 2
        task.cancel()
        return bell.timeouts

    assert min(asyncio.run(story())) >= 5.0


def test_a_reader_that_leaves_after_the_tailer_was_closed_leaves_in_peace() -> None:
    async def story() -> None:
        shared = Tailer()
        async with shared.state("status:x", lambda: (1, "state")):
            shared.close()

    asyncio.run(story())
