"""Store of the streams: append entries, and read them after a cursor.

This module and ``jobs.maintenance.stream_compaction`` are the writers of the streams' tables.

Entries are stored exactly once. A replica numbers its entries; ``Source.last`` is the last one that was taken. In one
transaction, under the lock of the stream's head, ``append_*`` drops entries that were taken before, assigns sequence
numbers to the rest, writes them as one block, and advances Source and head. Numbering and data are committed together
or not at all, whichever process is killed.

Reads are strictly after a cursor, in order of sequence numbers. There is no gap, because appends hold one lock. The
statements of the append are plain SQL: through the ORM an append takes four times as long as in the database alone.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from jobs.messages import jobs as messages
from jobs.models import Attempt, JobEvent
from jobs.models.streams import Block, Source, StreamHead, StreamKind
from jobs.streams import fencing, metric_names, search
from jobs.streams.block_codec import (
    STREAMS,
    Lines,
    Packed,
    Points,
    WriterId,
    pack_lines,
    pack_points,
    unpack_lines,
    unpack_points,
)
from jobs.streams.entries import Gap, LogLine, LogPage, Point
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.rows import ensure

JobId = uuid.UUID | str

# Replica name of the portal's own lines in the log, at most one for each attempt.
_PORTAL = "portal"
# Blocks that one query loads into memory: a sealed one unpacks to about half a MiB.
_BLOCKS_A_QUERY = 16


# --- Appending -------------------------------------------------------------------------------------------------------
def append_logs(
    *,
    job_id: JobId,
    attempt: Attempt,
    replica: str,
    first: int,
    lines: Sequence[tuple[float, str, str]],
    gone: int = 0,
    start_number: int | None = None,
) -> int:
    """Append lines (unix time, stream, text) that the replica numbers from ``first`` on; return the last number taken.

    Idempotent: lines that were taken before are dropped. Raises Gap if ``first`` is greater than the last number taken
    plus one, unless the replica no longer has the lines between: those up to ``gone``. They are then skipped, which an
    event reports. Also raises as ``fencing.check`` does for another start of the replica than its present one.
    """
    packed = Lines.from_rows(lines, WriterId(attempt.number, replica))
    return _append(job_id, attempt, replica, StreamKind.LOGS, first, packed, pack_lines, gone, start_number)


def append_metrics(
    *,
    job_id: JobId,
    attempt: Attempt,
    replica: str,
    first: int,
    points: Sequence[tuple[float, float, str, float]],
    gone: int = 0,
    start_number: int | None = None,
    on_first: Callable[[], object] | None = None,
) -> int:
    """Append points (unix time, step, key, value); the contract is that of ``append_logs``.

    ``on_first`` is called after the commit of the first points of the replica in the attempt.
    """
    packed = Points.from_rows(points, WriterId(attempt.number, replica))
    kind = StreamKind.METRICS
    return _append(job_id, attempt, replica, kind, first, packed, pack_points, gone, start_number, on_first)


def append_points(*, job_id: JobId, attempt: Attempt, replica: str, first: int, points: Points) -> int:
    """Append points in columns. Points of names beyond the job's limit are dropped: ``metric_names``."""
    return _append(job_id, attempt, replica, StreamKind.METRICS, first, points, pack_points)


def take_over(attempt: Attempt, replica: str, start_number: int) -> dict[str, int]:
    """Return the last numbers taken of lines and points, after which this start of the replica continues.

    No earlier start writes afterwards. Raises as ``fencing.check`` does.
    """
    taken = {}
    with transaction.atomic(), connection.cursor() as cursor:
        # In the order in which ``_append`` takes both locks.
        for kind in (StreamKind.METRICS, StreamKind.LOGS):
            _locked_head(cursor, attempt.job_id, kind)
            taken[str(kind)] = _source(cursor, attempt, replica, kind)[1]
        fencing.check(attempt, replica, start_number)
    return taken


def _append(
    job_id: JobId,
    attempt: Attempt,
    replica: str,
    kind: StreamKind,
    first: int,
    packed: Packed,
    pack: Callable[[Packed], bytes],
    gone: int = 0,
    start_number: int | None = None,
    on_first: Callable[[], object] | None = None,
) -> int:
    # Packing takes longest: it is done before the lock is taken, for the usual case that all entries are new.
    payload = pack(packed)
    with transaction.atomic(), connection.cursor() as cursor:
        head_id, last = _locked_head(cursor, job_id, kind)
        fencing.check(attempt, replica, start_number)
        source_id, taken = _source(cursor, attempt, replica, kind)
        if first > taken + 1:
            if first > gone + 1:
                raise Gap(taken)
            _report_lost(attempt, replica, kind, first - 1 - taken)
            taken = first - 1
        known = taken + 1 - first
        if known >= len(packed):
            return taken
        fresh = packed.skip(known) if known else packed
        kept = _admitted(attempt, fresh) if isinstance(fresh, Points) else fresh
        if kept is not packed:
            payload = pack(kept)
        if len(kept):
            cursor.execute(_INSERT_BLOCK, [_key(job_id), kind, last + 1, last + len(kept), payload])
            cursor.execute(_ADVANCE_HEAD, [last + len(kept), head_id])
        cursor.execute(_ADVANCE_SOURCE, [taken + len(fresh), source_id])
        if on_first is not None and not taken:
            transaction.on_commit(on_first, robust=True)
        ring(f"{kind}:{job_id}")
    return taken + len(fresh)


def _report_lost(attempt: Attempt, replica: str, kind: str, count: int) -> None:
    text = messages.ENTRIES_LOST_BY_RESTORE(count=count, kind=kind, replica=replica)
    JobEvent.objects.create(
        job_id=attempt.job_id, attempt=attempt.number, at=wall_clock(), replica=replica, kind="warning", text=text
    )


def _admitted(attempt: Attempt, points: Points) -> Points:
    """Return the points with admitted names; the first refused name is reported in the log."""
    kept, message = metric_names.admitted(attempt, points)
    if message:
        lines = [(time.time(), "system", message)]
        append_logs(job_id=attempt.job_id, attempt=attempt, replica=_PORTAL, first=1, lines=lines)
    return kept


def _locked_head(cursor: CursorWrapper, job_id: JobId, kind: str) -> tuple[int, int]:
    sql = _SELECT_HEAD + (" FOR UPDATE" if connection.features.has_select_for_update else "")
    cursor.execute(sql, [_key(job_id), kind])
    found: tuple[int, int] | None = cursor.fetchone()
    if found is None:
        ensure(StreamHead, job_id=job_id, kind=kind)
        return _locked_head(cursor, job_id, kind)
    return found


def _source(cursor: CursorWrapper, attempt: Attempt, replica: str, kind: str) -> tuple[int, int]:
    cursor.execute(_SELECT_SOURCE, [_key(attempt.pk), replica, kind])
    found: tuple[int, int] | None = cursor.fetchone()
    return found or (Source.objects.create(attempt=attempt, replica=replica, kind=kind).pk, 0)


def _key(value: JobId) -> Any:
    return Attempt._meta.pk.get_db_prep_value(value, connection)


_HEAD, _SOURCE, _BLOCK = (model._meta.db_table for model in (StreamHead, Source, Block))
_SELECT_HEAD = f"SELECT id, last FROM {_HEAD} WHERE job_id = %s AND kind = %s"  # noqa: S608
_SELECT_SOURCE = f"SELECT id, last FROM {_SOURCE} WHERE attempt_id = %s AND replica = %s AND kind = %s"  # noqa: S608
_INSERT_BLOCK = f"INSERT INTO {_BLOCK} (job_id, kind, lo, hi, payload) VALUES (%s, %s, %s, %s, %s)"  # noqa: S608
_ADVANCE_HEAD = f"UPDATE {_HEAD} SET last = %s, unsealed = unsealed + 1 WHERE id = %s"  # noqa: S608
_ADVANCE_SOURCE = f"UPDATE {_SOURCE} SET last = %s WHERE id = %s"  # noqa: S608


# --- Heads -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Head:
    """Last sequence number assigned, and whether the stream is complete."""

    last: int
    closed: bool


def head(job_id: JobId, kind: str) -> Head:
    """Return the head of a stream; that of an empty stream has 0."""
    row = StreamHead.objects.filter(job_id=job_id, kind=kind).values_list("last", "closed").first()
    return Head(*row) if row else Head(0, False)


def close(job_id: JobId) -> None:
    """Mark the job's streams as complete: its agents have flushed. Readers get the end after the last entry."""
    for kind in StreamKind:
        of = StreamHead.objects.filter(job_id=job_id, kind=kind)
        if not of.update(closed=True):
            ensure(StreamHead, job_id=job_id, kind=kind)
            of.update(closed=True)
        ring(f"{kind}:{job_id}")


# --- Reading ---------------------------------------------------------------------------------------------------------
def read_logs(
    job_id: JobId,
    *,
    after: int = 0,
    limit: int = 500,
    before: int | None = None,
    replica: str | None = None,
    since: float | None = None,
    text: str | None = None,
    regex: str | None = None,
    seconds: float = 2.0,
) -> LogPage:
    """Return a page of the first ``limit`` lines with ``seq > after``; with ``before``, the last with ``seq < before``.

    Filters: ``since`` (unix time) keeps lines of that time or later, ``text`` (case-insensitive) and ``regex`` lines
    that contain a match, ``replica`` those of one replica. A filtered page stops after about ``seconds``; it then has
    ``more`` set, and ``first`` and ``last`` have the range that was searched. Raises ``search.BadPattern`` for a
    pattern that cannot be used.
    """
    chosen = replica is not None or since is not None
    with search.matcher(text=text, regex=regex, seconds=seconds if chosen or text or regex else math.inf) as matcher:
        line_filter = _LineFilter(replica, since, matcher)
        if before is None:
            return _page_forwards(job_id, after, limit, line_filter)
        return _page_backwards(job_id, after, before, limit, line_filter)


@dataclass(frozen=True)
class _LineFilter:
    replica: str | None
    since: float | None
    matcher: search.Matcher

    def __call__(self, block: Block, after: int, before: int | None) -> list[LogLine]:
        return self.matcher.matching(list(_lines_of(block, after, before, self.replica, self.since)))


def _page_forwards(job_id: JobId, after: int, limit: int, line_filter: _LineFilter) -> LogPage:
    found: list[LogLine] = []
    cursor, last = after, head(job_id, StreamKind.LOGS).last
    for block in _blocks(job_id, StreamKind.LOGS, after):
        found += line_filter(block, cursor, None)
        cursor = block.hi
        if len(found) > limit or line_filter.matcher.expired:
            break
    else:
        # Entries before the head that are missing were removed: the page covers them.
        cursor = max(cursor, last)
    if len(found) > limit:
        found = found[:limit]
        cursor = found[-1].seq
    return LogPage(found, after + 1, cursor, cursor < head(job_id, StreamKind.LOGS).last)


def _page_backwards(job_id: JobId, after: int, before: int, limit: int, line_filter: _LineFilter) -> LogPage:
    pieces: list[list[LogLine]] = []
    cursor = before
    for block in _blocks_backwards(job_id, StreamKind.LOGS, after, before):
        pieces.insert(0, line_filter(block, after, cursor))
        cursor = max(block.lo, after + 1)
        if sum(map(len, pieces)) > limit or line_filter.matcher.expired:
            break
    else:
        cursor = after + 1
    found = [line for piece in pieces for line in piece]
    if len(found) > limit:
        found = found[-limit:]
        cursor = found[0].seq
    return LogPage(found, cursor, before - 1, cursor > after + 1)


def read_points(job_id: JobId, *, after: int = 0, limit: int = 500) -> list[Point]:
    """Return at most ``limit`` points with ``seq > after``, in order."""
    found: list[Point] = []
    for lo, points in read_point_columns(job_id, after=after):
        cursor = found[-1].seq if found else after
        found += _points_of(lo, points, cursor)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


def read_point_columns(job_id: JobId, *, after: int = 0, upto: int | None = None) -> Iterator[tuple[int, Points]]:
    """Yield whole blocks of points as columns, each with its first sequence number.

    The first block is the one that contains ``after + 1``.
    """
    for block in _blocks(job_id, StreamKind.METRICS, after, upto):
        yield block.lo, unpack_points(bytes(block.payload))


def read_log_blocks(job_id: JobId, *, after: int = 0) -> Iterator[list[LogLine]]:
    """Yield all lines after a cursor, a list for each block; at most a few blocks are in memory."""
    for block in _blocks(job_id, StreamKind.LOGS, after):
        yield list(_lines_of(block, after, None))
        after = block.hi


def _blocks(job_id: JobId, kind: str, after: int, upto: int | None = None) -> Iterator[Block]:
    """Yield the blocks with an entry after the cursor, in order.

    Each query starts from the cursor, so a merge between two queries hides no entry. A merged block can begin with
    entries of the block before it: callers must keep a cursor of their own.
    """
    rows = Block.objects.filter(job_id=job_id, kind=kind).order_by("hi")
    rows = rows if upto is None else rows.filter(lo__lte=upto)
    while page := list(rows.filter(hi__gt=after)[:_BLOCKS_A_QUERY]):
        for block in page:
            yield block
            after = block.hi
        if len(page) < _BLOCKS_A_QUERY:
            return  # these were all


def _blocks_backwards(job_id: JobId, kind: str, after: int, before: int) -> Iterator[Block]:
    rows = Block.objects.filter(job_id=job_id, kind=kind, hi__gt=after).order_by("-lo")
    while page := list(rows.filter(lo__lt=before)[:_BLOCKS_A_QUERY]):
        for block in page:
            yield block
            before = block.lo


def _lines_of(
    block: Block, after: int, before: int | None, replica: str | None = None, since: float | None = None
) -> Iterator[LogLine]:
    """Yield the block's lines between the cursors, filtered by ``replica`` and ``since`` if given."""
    lines = unpack_lines(bytes(block.payload))
    start = max(0, after + 1 - block.lo)
    stop = len(lines) if before is None else min(len(lines), before - block.lo)
    chosen = np.ones(len(lines), np.bool_)
    if replica is not None:
        chosen &= np.array([source.replica == replica for source in lines.sources])[lines.source]
    if since is not None:
        chosen &= lines.times >= since
    sources, streams, times = lines.source.tolist(), lines.stream.tolist(), lines.times.tolist()
    for place in (np.flatnonzero(chosen[start:stop]) + start).tolist():
        writer = lines.sources[sources[place]].replica
        yield LogLine(block.lo + place, times[place], writer, STREAMS[streams[place]], lines.texts[place])


def _points_of(lo: int, points: Points, after: int) -> list[Point]:
    columns = (points.times, points.source, points.steps, points.key, points.values)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    found = []
    for seq, (at, source, step, key, value) in enumerate(rows, lo):
        if seq > after:
            writer = points.sources[source]
            found.append(Point(seq, at, writer.attempt, writer.replica, step, points.keys[key], value))
    return found
