"""Log of the outputs of one notebook: operations with numbers, on disk, read after a cursor.

An operation is in the file before any page can read it. Everything here runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import json
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, BinaryIO, cast

from runtime.notebook.cell_outputs import Operation
from runtime.notebook.cell_record import CellRecord

_log = logging.getLogger(__name__)

# Characters of operations that are kept for pages that follow; a page that is further behind gets the state.
_TAIL = 4_000_000
# Characters in one answer to a page.
_BATCH = 256_000
# Size in bytes from which the file is rewritten from the present outputs of its cells.
_LARGEST_FILE = 64 << 20
# Between two tries to write a file again.
_RETRY_SECONDS = 5.0


class OutputLog:
    """The log of one notebook. ``path`` is its path in the contents API."""

    def __init__(self, path: str, file: Path) -> None:
        self.path = path
        self.identity = uuid.uuid4().hex
        self.cursor = 0
        self.records: dict[str, CellRecord] = {}
        self._path = file
        self._file: BinaryIO | None = None
        self._written = 0
        # The file lacks operations, because the disk was full: it is written again, at the earliest at this time.
        self._torn: float | None = None
        self._tail: deque[tuple[int, str]] = deque()
        self._tail_size = 0
        # Cursor before the first operation of the tail.
        self._tail_start = 0
        self._changed = asyncio.Event()
        if file.exists():
            self._load()

    def append(self, operation: Operation) -> None:
        """Record an operation of an execution. One of a replaced execution has no effect."""
        number = self.cursor + 1
        cell = operation["cell"]
        if operation["op"] == "queued":
            self.records[cell] = CellRecord(operation, number)
        record = self.records.get(cell)
        if record is None or record.execution != operation["execution"]:
            return
        stored, shown = record.apply(operation, number)
        self.cursor = number
        self._write(stored)
        self._keep(number, shown)

    def forget(self, cell: str) -> None:
        """Remove the record of a cell: a person has cleared or deleted it."""
        if self.records.pop(cell, None) is not None:
            self.cursor += 1
            self._write([{"op": "forget", "cell": cell}])

    def saved(self, cells: Collection[str]) -> None:
        """Note the cells that the notebook's file has."""
        for record in self.records.values():
            if record.cell in cells and not record.in_file:
                record.in_file = True
                self._write([{"op": "saved", "cell": record.cell, "execution": record.execution}])

    def end_all(self, executions: Iterable[str]) -> None:
        """End those executions that have not ended: their kernel has."""
        gone = set(executions)
        for record in list(self.records.values()):
            if record.execution in gone and not record.ended:
                self.append({"op": "end", "cell": record.cell, "execution": record.execution})

    def read(self, identity: str, after: int) -> tuple[int, list[str]]:
        """Return the next cursor and operations, as JSON, that a page needs after its cursor.

        A page that is too far behind, or that read another log, gets operations that lead to the present state.
        """
        if identity != self.identity or not self._tail_start <= after <= self.cursor:
            state = (one for record in self.records.values() for one in record.operations(record.shown.outputs()))
            return self.cursor, [json.dumps(one) for one in state]
        made: list[str] = []
        size, cursor = 0, after
        for number, text in _newer(self._tail, after):
            if size > _BATCH and number != cursor:
                return cursor, made
            made.append(text)
            size += len(text)
            cursor = number
        return self.cursor, made

    async def changed(self) -> None:
        """Return when something was appended."""
        await self._changed.wait()

    def move(self, path: str, file: Path) -> None:
        """Follow the notebook to another path."""
        self.close()
        self.path = path
        if self._path.exists():
            self._path.replace(file)
        self._path = file
        self._rewrite()

    def remove(self) -> None:
        """Remove the file: the notebook is deleted."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep(self, number: int, operations: Iterable[Operation]) -> None:
        for operation in operations:
            text = json.dumps(operation)
            self._tail.append((number, text))
            self._tail_size += len(text)
        while self._tail_size > _TAIL:
            first, text = self._tail.popleft()
            self._tail_start = first
            self._tail_size -= len(text)
        self._changed.set()
        self._changed = asyncio.Event()

    def _write(self, operations: Iterable[Operation]) -> None:
        data = b"".join(_line({**operation, "number": self.cursor}) for operation in operations)
        if not data:
            return
        if self._torn is not None:
            if time.monotonic() >= self._torn:
                self._try_to_rewrite()  # with these operations
            return
        try:
            # A disk that has become full takes a part.
            if self._opened().write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._written += len(data)
        except OSError as error:
            self._not_stored(error)
        else:
            if self._written > _LARGEST_FILE:
                self._try_to_rewrite()

    def _try_to_rewrite(self) -> None:
        try:
            self._rewrite()
            self._torn = None
        except OSError as error:
            self._not_stored(error)

    def _not_stored(self, error: OSError) -> None:
        """The outputs remain in memory, and pages get them."""
        self.close()
        self._torn = time.monotonic() + _RETRY_SECONDS
        _log.warning("The outputs of %s could not be stored: %s", self.path, error)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = not self._path.exists()
            self._file = cast(BinaryIO, self._path.open("ab", buffering=0))
            if new:
                self._file.write(self._head())
        return self._file

    def _head(self) -> bytes:
        return _line({"path": self.path, "log": self.identity, "number": self.cursor})

    def _rewrite(self) -> None:
        self.close()
        fresh = self._path.with_suffix(".new")
        lines = [self._head()]
        for record in self.records.values():
            lines += [_line({**one, "number": record.last}) for one in record.operations(record.stored.outputs())]
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(b"".join(lines))
        fresh.replace(self._path)
        self._written = sum(map(len, lines)) // 2

    def _load(self) -> None:
        """Read the file of an earlier server. Its kernels are gone, so its executions have ended."""
        with self._path.open("rb") as file:
            for line in file:
                if (one := _parsed(line)) is None:
                    break
                self._load_line(one)
        self._tail_start = self.cursor
        for record in self.records.values():
            record.ended = True
        self._try_to_rewrite()

    def _load_line(self, one: dict[str, Any]) -> None:
        self.cursor = max(self.cursor, one["number"])
        match one:
            case {"log": identity}:
                self.identity = identity
            case {"op": "forget", "cell": cell}:
                self.records.pop(cell, None)
            case {"op": "queued", "cell": cell}:
                self.records[cell] = CellRecord(one, one["number"])
        record = self.records.get(one.get("cell", ""))
        if record is not None and record.execution == one.get("execution"):
            record.apply(one, one["number"])


class OutputLogs:
    """The logs of all notebooks below a home directory."""

    def __init__(self, home: Path) -> None:
        self._directory = home / ".regatta" / "outputs"
        self._open: dict[str, OutputLog] = {}

    def get(self, path: str) -> OutputLog:
        """Return the log of a notebook; it has a file from its first operation."""
        path = path.strip("/")
        if path not in self._open:
            self._open[path] = OutputLog(path, self._file(path))
        return self._open[path]

    def move(self, old: str, new: str) -> None:
        """Follow a notebook or a directory that has another path now."""
        old, new = old.strip("/"), new.strip("/")
        for path in list(self._open):
            if path == old or path.startswith(f"{old}/"):
                moved = self._open.pop(path)
                there = new + path.removeprefix(old)
                moved.move(there, self._file(there))
                self._open[there] = moved

    def remove(self, path: str) -> None:
        """Remove the log of a notebook that is deleted."""
        self.get(path).remove()
        del self._open[path.strip("/")]

    def _file(self, path: str) -> Path:
        return self._directory / f"{hashlib.sha256(path.encode()).hexdigest()[:24]}.jsonl"


def _newer(tail: deque[tuple[int, str]], after: int) -> list[tuple[int, str]]:
    """Return the end of the tail: a page that follows needs only that, so its cost does not grow with the tail."""
    found = list(itertools.takewhile(lambda one: one[0] > after, reversed(tail)))
    return found[::-1]


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's value; None for the last line of a process that was killed."""
    try:
        return dict(json.loads(line)) if line.endswith(b"\n") else None
    except ValueError:
        return None
