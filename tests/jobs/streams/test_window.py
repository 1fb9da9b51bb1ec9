"""Window of a followed stream: the frame after a cursor, and the cost of finding it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streams.window import Window


@dataclass
class CountingFrame:
    """Frame that records each read of its position in the stream."""

    lo: int
    last: int
    size: int = 1
    reads: list[int] = field(default_factory=list)

    @property
    def hi(self) -> int:
        self.reads.append(self.lo)
        return self.last


@pytest.mark.invariant("A reader of a live log costs the same at any length of the log.")
def test_a_reader_at_the_end_of_15000_frames_reads_a_handful_of_them() -> None:
    reads: list[int] = []
    window: Window[CountingFrame] = Window(budget=1_000_000)
    for number in range(1, 15_001):
        window.add(CountingFrame(number, number, reads=reads))
    reads.clear()
    for _ in range(100):
        window.after(14_999)
    assert len(reads) <= 100 * 20


@pytest.mark.invariant("A reader of a live log costs the same at any length of the log.")
def test_a_reader_in_the_middle_of_15000_frames_reads_a_handful_of_them() -> None:
    reads: list[int] = []
    window: Window[CountingFrame] = Window(budget=1_000_000)
    for number in range(1, 15_001):
        window.add(CountingFrame(number, number, reads=reads))
    reads.clear()
    window.after(7_000)
    assert len(reads) <= 20


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 9)), max_size=40),
    st.integers(1, 40),
    st.integers(0, 200),
)
def test_the_lookup_equals_a_scan_of_the_newest_frames(
    pieces: list[tuple[int, int, int]], budget: int, cursor: int
) -> None:
    window: Window[CountingFrame] = Window(budget)
    kept: list[CountingFrame] = []
    end = 0
    for gap, length, size in pieces:
        frame = CountingFrame(end + gap + 1, end + gap + length, size)
        end = frame.last
        window.add(frame)
        kept.append(frame)
        while sum(one.size for one in kept) > budget and len(kept) > 1:
            kept.pop(0)
    inside = bool(kept) and kept[0].lo <= cursor + 1 <= kept[-1].last
    expected = next((frame for frame in kept if frame.last > cursor), None) if inside else None
    assert window.after(cursor) is expected
    assert len(window) == len(kept)


def test_dropped_frames_are_not_referenced() -> None:
    window: Window[CountingFrame] = Window(budget=10)
    for number in range(1, 10_001):
        window.add(CountingFrame(number, number))
    assert len(window._frames) <= 32
