"""Changes between a read and the following wait, and between two blocks of one read, are neither lost nor doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.maintenance import stream_compaction
from jobs.models.streams import StreamKind
from jobs.streams import rollups, store
from jobs.streams.entries import LogLine
from jobs.streams.frames import frames_of
from jobs.streams.tailer import StreamReader, Watcher
from portal.common.clock import now
from tests.jobs.streams.conftest import Writer

SECONDS = 5.0


class LateReader(StreamReader):
    """Reader that calls ``meanwhile`` once, after a follower's last read and before its wait."""

    def __init__(self, meanwhile: Callable[[StreamReader], None]) -> None:
        self._meanwhile = [meanwhile]
        self._at_end = False
        super().__init__("job", StreamKind.LOGS)

    @property
    def ended(self) -> bool:
        while self._meanwhile:
            self._meanwhile.pop()(self)
            return False
        return self._at_end

    @ended.setter
    def ended(self, value: bool) -> None:
        self._at_end = value


def one_frame(reader: StreamReader) -> None:
    [frame] = frames_of(StreamKind.LOGS, "job", [LogLine(1, 1.0, "trainer-0", "stdout", "the first")])
    reader._keep(frame)
    reader._broadcast.notify()


def test_a_frame_announced_between_the_look_and_the_wait_wakes_the_reader() -> None:
    async def scenario() -> Any:
        return await asyncio.wait_for(anext(LateReader(one_frame).follow(0)), SECONDS)

    assert asyncio.run(scenario()).hi == 1


def test_an_end_announced_between_the_look_and_the_wait_wakes_the_reader() -> None:
    def end(reader: StreamReader) -> None:
        reader.ended = True
        reader._broadcast.notify()

    async def scenario() -> list[Any]:
        async with asyncio.timeout(SECONDS):
            return [frame async for frame in LateReader(end).follow(0)]

    assert asyncio.run(scenario()) == []


class LateWatcher(Watcher):
    """Watcher that announces a new state once, after a follower's read and before its wait."""

    def __init__(self) -> None:
        self._number, self._pending = 0, True
        super().__init__("topic", lambda: (0, None))

    @property
    def _changes(self) -> int:
        number = self._number
        if number == 1 and self._pending:
            self._pending = False
            self._note(2, "second")
        return number

    @_changes.setter
    def _changes(self, value: int) -> None:
        self._number = value


def test_a_state_announced_between_the_look_and_the_wait_wakes_the_watcher() -> None:
    async def scenario() -> list[Any]:
        watcher = LateWatcher()
        watcher._pending = False
        watcher._note(1, "first")
        states = watcher.follow()
        found = [await asyncio.wait_for(anext(states), SECONDS)]
        watcher._pending = True
        return [*found, await asyncio.wait_for(anext(states), SECONDS)]

    assert asyncio.run(scenario()) == ["first", "second"]


# --- Charts ----------------------------------------------------------------------------------------------------------
def counts(writer: Writer) -> list[tuple[float, int]]:
    cost = rollups.buckets(writer.job.pk, ["cost"], buckets=100).series["cost"]
    return list(zip(cost.x.tolist(), cost.count.tolist(), strict=True))


@pytest.fixture
def long(writer: Writer) -> Writer:
    for first in range(1, 1001, 100):
        writer.points(first, first + 99)
    return writer


def after_one_block(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Call ``happens`` once, after the next read has yielded its first block."""
    read, pending = store.read_point_columns, [happens]

    def interrupted(*given: Any, **named: Any) -> Iterator[Any]:
        for found in read(*given, **named):
            yield found
            while pending:
                pending.pop()()

    monkeypatch.setattr(store, "_BLOCKS_A_QUERY", 1)
    monkeypatch.setattr(store, "read_point_columns", interrupted)


def test_blocks_that_are_merged_while_a_chart_reads_them_count_once(
    long: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = counts(long)
    rollups.forget()

    def merge() -> None:
        store.close(long.job.pk)
        assert stream_compaction.seal_due(now()) == 1

    after_one_block(monkeypatch, merge)
    assert counts(long) == exact
    assert counts(long) == exact


def test_points_read_before_the_store_failed_are_not_counted_again(
    long: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts(long)
    for first in range(1001, 1501, 100):
        long.points(first, first + 99)

    def fail() -> None:
        raise OSError("the store is away")

    after_one_block(monkeypatch, fail)
    with pytest.raises(OSError, match="away"):
        counts(long)
    assert sum(count for _, count in counts(long)) == 1500
