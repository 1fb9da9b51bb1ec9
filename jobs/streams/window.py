"""Window of the newest frames of a stream, with lookup by sequence number in logarithmic time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Generic, Protocol, TypeVar


class _Ranged(Protocol):
    """Consecutive entries ``lo`` to ``hi`` with the ``size`` of their text in bytes."""

    @property
    def lo(self) -> int: ...
    @property
    def hi(self) -> int: ...
    @property
    def size(self) -> int: ...


Held = TypeVar("Held", bound=_Ranged)


class Window(Generic[Held]):
    """Frames in order. The oldest are dropped while the total exceeds ``budget`` bytes; at least one is kept."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        # Frames before ``_first`` are dropped; the list is cut when they exceed half of it, so a drop costs O(1).
        self._frames: list[Held | Any] = []
        self._first = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames) - self._first

    def add(self, frame: Held) -> None:
        """Append the frame after the last one."""
        self._frames.append(frame)
        self._bytes += frame.size
        while self._bytes > self._budget and len(self) > 1:
            self._bytes -= self._frames[self._first].size
            self._frames[self._first] = None
            self._first += 1
        if self._first * 2 > len(self._frames):
            del self._frames[: self._first]
            self._first = 0

    def after(self, cursor: int) -> Held | None:
        """Return the frame with the entry after ``cursor``, or the first frame after a gap; None outside the window."""
        if not len(self) or not self._frames[self._first].lo <= cursor + 1 <= self._frames[-1].hi:
            return None
        place = bisect_right(self._frames, cursor, lo=self._first, key=lambda frame: frame.hi)
        found: Held = self._frames[place]
        return found
