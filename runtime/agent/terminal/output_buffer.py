"""The last output of a terminal. Each byte has a position, counted from 0 at the start of the session. Pure."""

from __future__ import annotations

from collections import deque


class OutputBuffer:
    """Keeps at most ``capacity`` bytes, the newest. ``first`` is the oldest kept position, ``end`` the next one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._pieces: deque[bytes] = deque()
        self._kept = self.first = self.end = 0

    def append(self, data: bytes) -> None:
        """Store output, and drop whole pieces from the start that are beyond the capacity."""
        self.end += len(data)
        if data:
            self._pieces.append(data[-self._capacity :])
            self._kept += len(self._pieces[-1])
        while self._kept > self._capacity:
            self._kept -= len(self._pieces.popleft())
        self.first = self.end - self._kept

    def read(self, after: int, most: int) -> tuple[int, bytes]:
        """Return the position of the next kept byte at or after the cursor, and at most ``most`` bytes from there.

        A cursor beyond the end is read as the end.
        """
        start = min(max(after, self.first), self.end)
        offset = start - self.first
        found, size = [], 0
        for piece in self._pieces:
            if offset >= len(piece):
                offset -= len(piece)
                continue
            found.append(piece[offset : offset + most - size])
            size += len(found[-1])
            offset = 0
            if size == most:
                break
        return start, b"".join(found)
