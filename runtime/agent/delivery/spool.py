"""Spool of the agent's numbered entries, kept on disk until the portal has accepted them, and after."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import contract

# Kinds of numbered entries.
LOGS, METRICS, EVENTS = "logs", "metrics", "events"
# Size limit of a batch when many entries are queued: fewer calls until the portal has caught up.
LARGEST_BATCH = 4 * contract.BATCH_BYTES


@dataclass(frozen=True)
class Cursor:
    """Position in a spool: ``number`` entries have been passed, and the next one begins at ``offset``."""

    number: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Batch:
    """Consecutive entries, each one JSON text, with the offset in the file at which each begins.

    ``after`` is the cursor after the last entry.
    """

    first: int
    entries: Sequence[bytes]
    places: Sequence[int]
    after: Cursor


class Spool:
    """File with one JSON entry per line. Entry ``before + n`` is line n: the file determines the numbers.

    An entry counts from the moment it is in the file, so it can be sent, and sent again, whatever happens to the portal
    or the network. Appending and reading may happen on different threads. A restarted replica continues in the file of
    its earlier start. A line of blanks is an entry that was left out, and has no number.
    """

    def __init__(self, path: Path, wake: Callable[[], None], before: int = 0) -> None:
        """Open the spool. ``wake`` is called when a new entry is queued and again when the queue has grown to a batch.

        ``before``: the number of entries that were numbered and are no longer in any file; see ``number_after``.
        """
        self.before = before
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._path = path
        self._wake = wake
        self._most: int | None = None  # maximum entries of the next batch, while a refused entry is searched for
        self._lock = threading.Lock()
        self.sent, self._size = self._recover()
        # A partial entry is dropped.
        os.ftruncate(self._file, self._size)
        self._waiting_since = time.monotonic() if self._size else None

    def number_after(self, before: int) -> None:
        """Set the number of entries of earlier starts, which was unknown. No entry may have been sent."""
        with self._lock:
            self._before = before
            self.sent = Cursor(before + self.sent.number, self.sent.offset)

    def append(self, entries: Sequence[str]) -> None:
        """Number and store the entries, each a JSON text without a line break.

        Raises OSError and stores none on failure.
        """
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

    def due(self, now: float, age: float = 0.0) -> float | None:
        """Return the seconds until a batch should be sent: 0 for at once, None when nothing is queued.

        ``age``: how old its first entry may become, in seconds, but at least BATCH_SECONDS.
        """
        with self._lock:
            if self._waiting_since is None:
                return None
            if self._size - self.sent.offset >= contract.BATCH_BYTES:
                return 0.0
            return max(0.0, self._waiting_since + max(contract.BATCH_SECONDS, age) - now)

    def batch(self) -> Batch:
        """Return the entries after the last one sent, at most a batch."""
        with self._lock:
            size = self._size
        block = self._read(self.sent.offset, size, LARGEST_BATCH)
        entries, places, offset = list[bytes](), list[int](), self.sent.offset
        for line in block.split(b"\n")[:-1]:
            if len(entries) == self._most:
                break
            if not _is_left_out(line):
                entries.append(line)
                places.append(offset)
            offset += len(line) + 1
        return Batch(self.sent.number + 1, entries, places, Cursor(self.sent.number + len(entries), offset))

    def send_at_most(self, entries: int) -> None:
        """Limit the next batch to this many entries. The batches after it have the usual size."""
        self._most = max(1, entries)

    def leave_out(self, batch: Batch, numbers: Iterable[int]) -> None:
        """Remove entries of an unaccepted batch from the file: the entries after them move up by one each.

        Raises OSError.
        """
        # Overwritten through a second descriptor: the file is open for appending, which ignores the position.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for number in numbers:
                os.pwrite(descriptor, b" " * max(1, len(batch.entries[number])), batch.places[number])
        finally:
            os.close(descriptor)
        self._most = None

    def taken(self, after: Cursor) -> None:
        """Record that the portal has everything before ``after``."""
        self._most = None
        with self._lock:
            self.sent = after
            self._waiting_since = time.monotonic() if self._size > after.offset else None

    def go_to(self, last: int) -> None:
        """Continue after entry ``last``, the portal's last one, which may be earlier or later than expected."""
        number, offset = self.before, 0
        with self._lock:
            size = self._size
        while number < last and offset < size:
            for line in self._read(offset, size, LARGEST_BATCH).split(b"\n")[:-1]:
                if number == last:
                    break
                number += not _is_left_out(line)
                offset += len(line) + 1
        self.taken(Cursor(number, offset))

    def _recover(self) -> tuple[Cursor, int]:
        """Return the cursor before the last entry of the file, and where that entry ends.

        Sending the last entry again reveals the portal's position: it has the entry already, or names where to
        continue.
        """
        number = begin = offset = 0
        size = os.fstat(self._file).st_size
        while lines := self._read(offset, size, LARGEST_BATCH).split(b"\n")[:-1]:
            number += len(lines) - sum(map(_is_left_out, lines))
            offset += sum(map(len, lines)) + len(lines)
            begin, again = offset - len(lines[-1]) - 1, not _is_left_out(lines[-1])
        return Cursor(self.before + number - (again if offset else 0), begin), offset

    def _write(self, block: bytes) -> None:
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # A partial entry would shift the numbers of all that follow.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(block)

    def _read(self, offset: int, end: int, limit: int) -> bytes:
        """Return whole entries from ``offset``, about ``limit`` bytes of them, at least one if there is one.

        Raises OSError, also if the file has become shorter.
        """
        while True:
            length = min(limit, end - offset)
            block = os.pread(self._file, length, offset)
            whole = block[: block.rfind(b"\n") + 1]
            if whole or length == 0:
                return whole
            if len(block) < length:
                raise OSError(errno.EIO, "it is shorter than it was", str(self._path))
            if length == end - offset:
                return whole
            limit *= 2


def _is_left_out(line: bytes) -> bool:
    return line.startswith(b" ")
