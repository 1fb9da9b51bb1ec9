"""The recorder of a terminal whose connection ends while a part is being stored."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.terminals import recorder
from jobs.terminals.access import Target
from jobs.terminals.recorder import Recorder


class SlowStorage:
    """Stores a part in several turns of the loop, also if nobody waits any more, as a thread does."""

    def __init__(self) -> None:
        self.begun, self.stored, self.at_work = asyncio.Event(), 0, 0
        self.overlapped = False

    async def run(self, function: Any, *given: Any) -> Any:
        return await asyncio.shield(asyncio.ensure_future(self._run()))

    async def _run(self) -> bool:
        self.begun.set()
        self.at_work += 1
        self.overlapped |= self.at_work > 1
        for _ in range(10):
            await asyncio.sleep(0)
        self.at_work -= 1
        self.stored += 1
        return True


def recording() -> Recorder:
    target = SimpleNamespace(job=SimpleNamespace(name="job"), replica="trainer-0")
    return Recorder(cast(Target, target), "person", 80, 24)


def test_two_parts_of_a_recording_are_never_stored_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would get the same number: one of them would be lost, and the recording could not be read."""

    async def scenario() -> SlowStorage:
        storage = SlowStorage()
        monkeypatch.setattr(recorder, "in_thread", storage.run)
        record = recording()
        showing = asyncio.ensure_future(record.output(b"x" * (recorder.PART_CHARACTERS + 1)))
        await storage.begun.wait()
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing
        await record.close()
        return storage

    assert not asyncio.run(scenario()).overlapped


def test_changes_of_the_size_without_output_fill_no_more_than_a_part() -> None:
    record = recording()
    for _ in range(50_000):
        record.resize(100, 50)
    assert record._writer.pending < 2 * recorder.PART_CHARACTERS
