"""Compaction of streams: merge many small blocks into few large compressed ones, and close streams left open.

Each ingested batch makes a block of its own, which is fast to write but slow to read by the thousand. The sweep calls
``seal_due``, which merges the new blocks of a stream that has many of them or is closed. Segments stay in the table of
the blocks: a merge is then one transaction that replaces small blocks by a large one with the same numbers, and a
reader sees either. Another storage would need a second protocol to keep both consistent, and would save only space in
the database.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from jobs import storage_usage
from jobs.lifecycle.state_machine import TERMINAL
from jobs.models.streams import Block, StreamHead, StreamKind
from jobs.streams import store
from jobs.streams.block_codec import merge_lines, merge_points, seal_lines, seal_points, unpack_lines, unpack_points

# An open stream is merged when it has this many unmerged blocks.
MANY_BLOCKS = 64
# Blocks that are merged at once, and the limits of a segment: a page of lines unpacks one whole segment.
BLOCKS_AT_ONCE = 64
# Blocks left after this many rounds wait for the next sweep: the jobs' states must not wait for compaction.
ROUNDS = 4
SEGMENT_ENTRIES = {StreamKind.LOGS: 4_000, StreamKind.METRICS: 32_000}
SEGMENT_BYTES = 512 * 1024  # packed, before the merge
# How long after its end a job's streams are closed, if its agents sent no final report.
CLOSE_AFTER = timedelta(seconds=30)
# Pause before a stream that could not be sealed is tried again.
RETRY_AFTER = timedelta(minutes=10)

_log = logging.getLogger(__name__)
# The streams that failed in this process, with the time of the failure.
_failed: dict[int, datetime] = {}


def seal_due(now: datetime, *, limit: int = 20) -> int:
    """Seal at most ``limit`` streams that are due. Return their number. Takes three small queries if there is none."""
    _close_forgotten(now, limit)
    waiting = _waiting_after_failure(now)
    heads = _due(True, 1, waiting, limit)
    heads += _due(False, MANY_BLOCKS, waiting, limit - len(heads))
    for pk in heads:
        try:
            _seal(pk)
        except Exception:  # noqa: BLE001  any error concerns this stream alone
            _failed[pk] = now
            _log.exception("Stream %s could not be sealed; it is tried again in %s.", pk, RETRY_AFTER)
    return len(heads)


def _due(closed: bool, least: int, waiting: Sequence[int], limit: int) -> list[int]:
    """Return the closed or open streams with at least so many unmerged blocks, those with most of them first.

    Condition and order are those of the index on both columns. Otherwise PostgreSQL, which expects to find ``limit`` of
    them soon, reads the heads of all jobs that ever ran. (``closed=True`` is written without a comparison, for which
    SQLite uses no index.)
    """
    heads = StreamHead.objects.filter(closed__in=(closed,), unsealed__gte=least).exclude(pk__in=waiting)
    return list(heads.order_by("-unsealed").values_list("pk", flat=True)[:limit]) if limit else []


def _waiting_after_failure(now: datetime) -> list[int]:
    """Return the streams that failed recently. Without a pause, the first 20 of them would block all others."""
    for pk in [pk for pk, at in _failed.items() if at <= now - RETRY_AFTER]:
        del _failed[pk]
    return list(_failed)


def _close_forgotten(now: datetime, limit: int) -> None:
    ended = Q(job__state__in=TERMINAL, job__finished__lt=now - CLOSE_AFTER)
    for job_id in StreamHead.objects.filter(ended, closed=False).values_list("job_id", flat=True)[:limit]:
        store.close(job_id)


def _seal(head_pk: int) -> None:
    """Merge some of a stream's new blocks. Compression is slow and happens before the lock is acquired."""
    for _ in range(ROUNDS):
        head = StreamHead.objects.get(pk=head_pk)
        blocks = list(_blocks_of(head).filter(lo__gt=head.sealed).order_by("lo")[:BLOCKS_AT_ONCE])
        if not blocks:
            return
        kind = StreamKind(head.kind)
        segments = [_segment(group, kind) for group in _groups(blocks, SEGMENT_ENTRIES[kind])]
        if not _swap(head, blocks, segments):
            return


Segment = tuple[list[int], Block]


def _swap(head: StreamHead, blocks: list[Block], segments: list[Segment]) -> bool:
    """Replace blocks by their segments. Return False if another process has sealed this range meanwhile."""
    with transaction.atomic():
        now = StreamHead.objects.select_for_update().get(pk=head.pk)
        if now.sealed != head.sealed:
            return False
        for replaced, segment in segments:
            Block.objects.filter(pk__in=replaced).delete()
            segment.save(force_insert=True)
        storage_usage.sealed(head.job_id, sum(len(segment.payload) for _, segment in segments))
        left = max(0, now.unsealed - len(blocks))
        StreamHead.objects.filter(pk=head.pk).update(sealed=blocks[-1].hi, unsealed=left)
    return True


def _blocks_of(head: StreamHead) -> Any:
    return Block.objects.filter(job_id=head.job_id, kind=head.kind)


def _groups(blocks: Sequence[Block], entries: int) -> Iterator[list[Block]]:
    """Group adjacent blocks that together fit the size of a segment.

    A gap in the numbers separates groups, so that readers still see the gap.
    """
    group: list[Block] = []
    for block in blocks:
        held = block.hi - group[0].lo + 1 if group else 0
        size = sum(len(bytes(member.payload)) for member in group) + len(bytes(block.payload))
        if group and (held > entries or size > SEGMENT_BYTES or block.lo != group[-1].hi + 1):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _segment(group: list[Block], kind: StreamKind) -> Segment:
    payload = _MERGE[kind]([bytes(block.payload) for block in group])
    first, last = group[0], group[-1]
    segment = Block(job_id=first.job_id, kind=kind, lo=first.lo, hi=last.hi, payload=payload)
    return [block.pk for block in group], segment


def _merged_lines(payloads: list[bytes]) -> bytes:
    return seal_lines(merge_lines([unpack_lines(payload) for payload in payloads]))


def _merged_points(payloads: list[bytes]) -> bytes:
    return seal_points(merge_points([unpack_points(payload) for payload in payloads]))


_MERGE: dict[StreamKind, Callable[[list[bytes]], bytes]] = {
    StreamKind.LOGS: _merged_lines,
    StreamKind.METRICS: _merged_points,
}
