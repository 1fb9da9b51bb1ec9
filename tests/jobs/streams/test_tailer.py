"""Readers and watchers of one event loop: the times of their reads, and their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from jobs.models.streams import StreamKind
from jobs.streams import store, tailer
from jobs.streams.tailer import StreamReader, Tailer, Watcher
from portal.common.monitoring import metrics
from tests.jobs.streams.conftest import Writer

pytestmark = pytest.mark.django_db(transaction=True)


class PatientBell:
    """Bell that records the timeouts of its waiters and rings on the test's command."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.waiting = asyncio.Event()
        self.rung = asyncio.Event()

    def take_since(self) -> None:
        return None

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

    async def scenario() -> list[float]:
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

    assert min(asyncio.run(scenario())) >= 5.0


def test_a_reader_may_leave_after_the_tailer_was_closed() -> None:
    async def scenario() -> None:
        shared = Tailer()
        async with shared.state("status:x", lambda: (1, "state")):
            shared.close()

    asyncio.run(scenario())


class StoreAwayOnce:
    """Store whose first read of a head fails."""

    def __init__(self) -> None:
        self._head, self.looks = store.head, 0

    def __call__(self, job: str, kind: str) -> store.Head:
        self.looks += 1
        if self.looks == 1:
            raise OSError("the store is away")
        return self._head(job, kind)


def test_a_reader_continues_after_an_error_of_the_store(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.lines(1, 3)
    monkeypatch.setattr(tailer, "SPACING_SECONDS", 0.0)
    monkeypatch.setattr(store, "head", StoreAwayOnce())

    async def scenario() -> int:
        bell, reader = PatientBell(), StreamReader(str(writer.job.pk), StreamKind.LOGS)
        task = asyncio.create_task(reader.run(bell))  # type: ignore[arg-type]
        for _ in range(2):
            await asyncio.wait_for(bell.waiting.wait(), 60)
            bell.waiting.clear()
            bell.rung.set()
        task.cancel()
        return reader.hi

    assert asyncio.run(scenario()) == 3


class ScriptedBell:
    """Bell that lets ``write`` append before its first answer, which is ``rung``; then it ends the reader."""

    def __init__(self, write: Callable[[], int], *, rung: bool) -> None:
        self._write, self._rung = write, rung
        self.waits = 0

    def take_since(self) -> float | None:
        return time.time() - 0.5 if self.waits and self._rung else None

    async def wait(self, timeout: float) -> bool:
        self.waits += 1
        if self.waits > 1:
            raise asyncio.CancelledError
        await tailer.in_thread(self._write)
        return self._rung


def delivered(writer: Writer, *, rung: bool) -> None:
    """Have a reader deliver three lines after a ring, or after a poll."""

    async def scenario() -> None:
        bell = ScriptedBell(lambda: writer.lines(1, 3), rung=rung)
        with pytest.raises(asyncio.CancelledError):
            await StreamReader(str(writer.job.pk), StreamKind.LOGS).run(bell)  # type: ignore[arg-type]

    asyncio.run(scenario())


def test_the_lag_of_readers_counts_from_the_commit(writer: Writer) -> None:
    before = metrics.STREAM_LAG._sum.get()
    delivered(writer, rung=True)
    assert metrics.STREAM_LAG._sum.get() - before >= 0.5


def test_entries_that_only_a_poll_found_are_counted(writer: Writer) -> None:
    before = metrics.STREAM_FALLBACKS._value.get()
    delivered(writer, rung=False)
    assert metrics.STREAM_FALLBACKS._value.get() == before + 1


def test_a_follower_gets_all_of_a_closed_stream_that_is_read_in_several_turns(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer, "READ_ENTRIES", 2)
    monkeypatch.setattr(tailer, "POLL_SECONDS", 600.0)  # a poll hides that it was not notified

    async def scenario() -> list[int]:
        reader = StreamReader(str(writer.job.pk), StreamKind.LOGS)
        await reader._read_on()
        for first in (1, 3, 5):
            await tailer.in_thread(writer.lines, first, first + 1)
        await tailer.in_thread(store.close, writer.job.pk)

        async def follow() -> list[int]:
            return [entry.seq for frame in [each async for each in reader.follow(0)] for entry in frame.entries]

        following = asyncio.create_task(follow())
        while not await reader._read_on():
            assert not reader.ended
        return await asyncio.wait_for(following, 60)

    assert asyncio.run(scenario()) == [1, 2, 3, 4, 5, 6]
