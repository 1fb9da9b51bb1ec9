"""Recorder of one connection: encodes what it shows and stores it in parts."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jobs.models import TerminalRecording
from jobs.streams.tailer import in_thread
from jobs.terminals import recordings
from jobs.terminals.access import Target
from jobs.terminals.asciicast import Writer

# A part is stored when it has this many characters, or at output after this time.
PART_CHARACTERS = 256 * 1024
PART_SECONDS = 5.0


class Recorder:
    """Records one connection. Stops at ``recordings.MOST_BYTES``, or when the storage accepts nothing more."""

    def __init__(self, target: Target, person: str, columns: int, rows: int) -> None:
        self._target, self._person = target, person
        self._begun = self._stored_at = time.monotonic()
        title = f"{target.job.name} {target.replica}"
        self._writer = Writer(max(columns, 1), max(rows, 1), title, int(time.time()))
        self._recording: TerminalRecording | None = None
        self._open, self._size = True, 0
        self._storing: asyncio.Task[None] | None = None

    async def output(self, data: bytes) -> None:
        """Record output, and store a part if it is due."""
        if not self._open:
            return
        moment = time.monotonic()
        self._writer.output(moment - self._begun, data)
        if self._writer.pending > PART_CHARACTERS or moment - self._stored_at > PART_SECONDS:
            await self._store()

    def resize(self, columns: Any, rows: Any) -> None:
        """Record a change of the size. One beyond a full part is left out: a part is stored at output only."""
        if self._writer.pending > PART_CHARACTERS:
            return
        if self._open and type(columns) is int and type(rows) is int:
            self._writer.resize(time.monotonic() - self._begun, columns, rows)

    async def close(self) -> None:
        """Store the rest, after a part whose storing was cancelled: both would have the same number."""
        if self._storing is not None:
            await asyncio.wait([self._storing])
        if self._open:
            await self._store()
        if self._recording is not None:
            await in_thread(recordings.end, self._recording)

    async def _store(self) -> None:
        """Store a part. It is stored to its end also if the caller is cancelled."""
        self._storing = asyncio.ensure_future(self._store_part())
        await asyncio.shield(self._storing)

    async def _store_part(self) -> None:
        self._stored_at = time.monotonic()
        if self._recording is None:
            job = self._target.job
            self._recording = await in_thread(recordings.begin, job, self._target.replica, self._person)
        content = self._writer.take()
        self._size += len(content)
        stored = await in_thread(recordings.add_part, self._recording, content)
        self._open = stored and self._size < recordings.MOST_BYTES
