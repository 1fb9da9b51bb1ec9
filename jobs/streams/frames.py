"""Frames that are sent to readers of a stream, encoded once for all readers. Pure.

A frame covers consecutive entries ``lo`` to ``hi``. A frame that is filtered by replica still has ``lo`` and ``hi`` of
the unfiltered entries, so that the reader's cursor advances past entries of other replicas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jobs.models.streams import StreamKind
from jobs.streams.entries import LogLine, Point

FRAME_BYTES = 64 * 1024
FRAME_ENTRIES = 500

# The JSON member of a frame that holds the entries, by the kind of the stream.
FIELD = {StreamKind.LOGS: "lines", StreamKind.METRICS: "points"}

Entry = TypeVar("Entry", LogLine, Point)


@dataclass(frozen=True, slots=True)
class Frame(Generic[Entry]):
    """Entries with the text that is sent for them. ``size``: bytes of the text."""

    kind: StreamKind
    job: str
    lo: int
    hi: int
    entries: Sequence[Entry]
    text: str
    size: int

    def narrowed(self, after: int, replica: str | None) -> Frame[Entry]:
        """Return the frame with only the entries after a cursor, and of one replica if one is given."""
        if after < self.lo and replica is None:
            return self
        kept = [entry for entry in self.entries if entry.seq > after and replica in (None, entry.replica)]
        return _frame(self.kind, self.job, max(self.lo, after + 1), self.hi, kept, [encode(e.to_json()) for e in kept])


def frames_of(kind: StreamKind, job: str, entries: Sequence[Entry]) -> Iterator[Frame[Entry]]:
    """Split consecutive entries into frames. An entry that is too large for a frame gets one of its own."""
    start, size = 0, 0
    pieces: list[str] = []
    for place, entry in enumerate(entries):
        piece = encode(entry.to_json())
        length = len(piece.encode()) + 1
        if pieces and (len(pieces) >= FRAME_ENTRIES or size + length > FRAME_BYTES):
            yield _whole(kind, job, entries[start:place], pieces)
            start, pieces, size = place, [], 0
        pieces.append(piece)
        size += length
    if pieces:
        yield _whole(kind, job, entries[start:], pieces)


def encode(body: dict[str, Any]) -> str:
    """Return a frame's JSON. Raises ValueError for NaN, which JSON does not have."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _whole(kind: StreamKind, job: str, entries: Sequence[Entry], pieces: list[str]) -> Frame[Entry]:
    return _frame(kind, job, entries[0].seq, entries[-1].seq, entries, pieces)


def _frame(kind: StreamKind, job: str, lo: int, hi: int, entries: Sequence[Entry], pieces: list[str]) -> Frame[Entry]:
    start = encode({"t": kind, "job": job, "lo": lo, "hi": hi})[:-1]
    text = f'{start},"{FIELD[kind]}":[{",".join(pieces)}]}}'
    return Frame(kind, job, lo, hi, entries, text, len(text.encode()))
