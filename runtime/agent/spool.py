"""What the agent has numbered, kept on disk until the portal has taken it, and after."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import contract

# The kinds of what is numbered.
LOGS, METRICS, EVENTS = "logs", "metrics", "events"
# When much has piled up, a batch may be this big: fewer calls until the portal has caught up.
LARGEST_BATCH = 4 * contract.BATCH_BYTES


@dataclass(frozen=True)
class Cursor:
    """``number`` entries have been passed; the next one begins at ``offset``."""

    number: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Batch:
    """Consecutive entries, each one JSON text. ``after`` is the cursor behind the last."""

    first: int
    entries: Sequence[bytes]
    after: Cursor


class Spool:
    """A file with one JSON entry a line: entry ``before + n`` is line n, and the numbering is the file's.

    An entry counts from the moment it is in the file, so that whatever happens to the portal or the network it can be
    sent, and sent again. Appending and reading may happen on different threads. A replica that is started again in its
    place goes on in the file of its life before.
    """

    def __init__(self, path: Path, wake: Callable[[], None], before: int = 0) -> None:
        """``wake`` is called when something new waits and again when it has grown to a batch. ``before``: how many
        entries were numbered that are in no file any more."""
        self._before = before
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._wake = wake
        self._lock = threading.Lock()
        self.sent, self._size = self._kept()
        # Half an entry is no entry.
        os.ftruncate(self._file, self._size)
        self._waiting_since = time.monotonic() if self._size else None

    def append(self, entries: Sequence[str]) -> None:
        """Number and keep the entries, each a JSON text without a line break. All or, with OSError, none of them."""
        if not entries:
            return
        block = ("\n".join(entries) + "\n").encode()
        with self._lock:
            before = self._size - self.sent.offset
            self._write(block)
            if first := self._waiting_since is None:
                self._waiting_since = time.monotonic()
        if first or before < contract.BATCH_BYTES <= before + len(block):
            self._wake()

    def due(self, now: float) -> float | None:
        """Seconds until a batch should go, 0 for at once, None when nothing waits."""
        with self._lock:
            if self._waiting_since is None:
                return None
            if self._size - self.sent.offset >= contract.BATCH_BYTES:
                return 0.0
            return max(0.0, self._waiting_since + contract.BATCH_SECONDS - now)

    def batch(self) -> Batch:
        """The entries after what was sent, at most a batch."""
        with self._lock:
            size = self._size
        block = self._read(self.sent.offset, size, LARGEST_BATCH)
        entries = block.split(b"\n")[:-1]
        after = Cursor(self.sent.number + len(entries), self.sent.offset + len(block))
        return Batch(self.sent.number + 1, entries, after)

    def taken(self, after: Cursor) -> None:
        """The portal has everything before ``after``."""
        with self._lock:
            self.sent = after
            self._waiting_since = time.monotonic() if self._size > after.offset else None

    def go_to(self, last: int) -> None:
        """The portal has ``last`` entries, fewer or more than was thought: send from there."""
        number, offset = self._before, 0
        with self._lock:
            size = self._size
        while number < last and offset < size:
            entries = self._read(offset, size, LARGEST_BATCH).split(b"\n")[:-1][: last - number]
            number += len(entries)
            offset += sum(map(len, entries)) + len(entries)
        self.taken(Cursor(number, offset))

    def _kept(self) -> tuple[Cursor, int]:
        """The cursor before the last entry of the file, and where that entry ends.

        Sending the last one again tells where the portal is: it has it already, or says from where to go on.
        """
        number = begin = end = offset = 0
        while block := os.pread(self._file, LARGEST_BATCH, offset):
            if (last := block.rfind(b"\n")) >= 0:
                before = block.rfind(b"\n", 0, last)
                begin, end = (end if before < 0 else offset + before + 1), offset + last + 1
                number += block.count(b"\n")
            offset += len(block)
        return Cursor(self._before + max(0, number - 1), begin), end

    def _write(self, block: bytes) -> None:
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # Half an entry would shift the number of all that follow.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(block)

    def _read(self, offset: int, end: int, limit: int) -> bytes:
        """Whole entries from ``offset``, about ``limit`` bytes of them, at least one if there is one."""
        while True:
            block = os.pread(self._file, min(limit, end - offset), offset)
            whole = block[: block.rfind(b"\n") + 1]
            if whole or len(block) >= end - offset:
                return whole
            limit *= 2
