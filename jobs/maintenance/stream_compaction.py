"""Merges the many small blocks of a stream into few big ones, compressed, and closes what nobody closed.

A batch that is taken in makes a block of its own, which is quick to write and slow to read by the thousand. The sweep
calls ``seal_due``: a stream with many new blocks, or one that is closed, has them merged. Segments stay in the table
of the blocks: a merge is then one transaction, in which small ones go and a big one comes with the same numbers, and
a reader sees either. Another storage would need a second protocol to keep both in step, and would save only room in
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

# A running stream is merged when it has this many blocks that were not.
MANY_BLOCKS = 64
# What is merged at once, and the most that a segment holds: a page of lines unpacks one whole segment.
BLOCKS_AT_ONCE = 64
# What is left after so many rounds waits for the next sweep: the jobs' states must not wait for it.
ROUNDS = 4
SEGMENT_ENTRIES = {StreamKind.LOGS: 4_000, StreamKind.METRICS: 32_000}
SEGMENT_BYTES = 512 * 1024  # packed, before the merge
# How long after its end a job's streams are closed, if its agents had no last word.
CLOSE_AFTER = timedelta(seconds=30)
# A stream that could not be sealed is left alone for so long.
RETRY_AFTER = timedelta(minutes=10)

_log = logging.getLogger(__name__)
# The streams that failed in this process, by the time of it.
_failed: dict[int, datetime] = {}


def seal_due(now: datetime, *, limit: int = 20) -> int:
    """Do what is due for at most ``limit`` streams; returns for how many. Two small queries where nothing is."""
    _close_forgotten(now, limit)
    due = Q(closed=True, unsealed__gt=0) | Q(unsealed__gte=MANY_BLOCKS)
    waiting = _waiting_after_failure(now)
    heads = list(StreamHead.objects.filter(due).exclude(pk__in=waiting).values_list("pk", flat=True)[:limit])
    for pk in heads:
        try:
            _seal(pk)
        except Exception:  # noqa: BLE001  whatever it is, it is about this stream alone
            _failed[pk] = now
            _log.exception("Stream %s could not be sealed; it is tried again in %s.", pk, RETRY_AFTER)
    return len(heads)


def _waiting_after_failure(now: datetime) -> list[int]:
    """The streams that failed a moment ago: without a pause the first 20 such would keep all others from their turn."""
    for pk in [pk for pk, at in _failed.items() if at <= now - RETRY_AFTER]:
        del _failed[pk]
    return list(_failed)


def _close_forgotten(now: datetime, limit: int) -> None:
    ended = Q(job__state__in=TERMINAL, job__finished__lt=now - CLOSE_AFTER)
    for job_id in StreamHead.objects.filter(ended, closed=False).values_list("job_id", flat=True)[:limit]:
        store.close(job_id)


def _seal(head_pk: int) -> None:
    """Merge some of a stream's new blocks. Compressing is slow and done before the lock is taken."""
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
    """Put the segments in the places of their blocks. False: somebody else has sealed this stretch meanwhile."""
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
    """Neighbours that together stay within the size of a segment. A hole between blocks parts them: it must stay
    seen.
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
