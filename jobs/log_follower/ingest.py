"""Storage of a followed log: its lines, the metric points in them, and the place reached, in one transaction.

Entries are appended by the same functions as those of agents. A second follower of the same log, or one of a replaced
attempt, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F

from jobs.log_follower.cursor import Line, Place
from jobs.messages import cluster as messages
from jobs.models import Attempt, Job, Replica
from jobs.models.streams import FollowedLog
from jobs.reconcile import job_spans
from jobs.streams import store
from portal.common.rows import ensure
from runtime.log_lines import Cap, shown
from runtime.metric_parser import CostReader

STDOUT, SYSTEM = "stdout", "system"
ROTATED = messages.LOG_ROTATED()
_SECOND = 10**9


class Overtaken(Exception):
    """Another follower has stored more of this log, or the attempt was replaced."""


@dataclass(frozen=True)
class Taken:
    """Stored progress of a log: its place, the numbers of its lines and points, and the memory of the cost reader.

    ``kept`` is the number of bytes that the cap has admitted, ``dropped`` that of the lines that it has refused.
    """

    place: Place = field(default_factory=Place)
    lines: int = 0
    points: int = 0
    kept: int = 0
    dropped: int = 0
    costs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Taken:
        return cls(**{**body, "place": Place(**body["place"])}) if body else cls()


Entry = tuple[float, str, str]
Point = tuple[float, float, str, float]


@dataclass(frozen=True)
class Piece:
    """Result of a batch of lines: log entries, metric points, and the progress after them."""

    entries: Sequence[Entry]
    points: Sequence[Point]
    taken: Taken


def piece(
    taken: Taken, lines: Sequence[Line], place: Place, cap: int, remark: tuple[float, str] | None = None
) -> Piece:
    """Convert lines into entries and points. Pure.

    ``cap``: bytes of the replica's output that are stored. ``remark``: time and text of a message that the platform
    adds.
    """
    limit, costs = Cap(cap, taken.kept, taken.dropped), CostReader(taken.costs)
    entries: list[Entry] = []
    points: list[Point] = []
    for line in lines:
        at = line.stamp / _SECOND
        kept, remarks = limit.admit([shown(line.body, line.cut).replace("\0", "\ufffd")])
        entries += [(at, SYSTEM, ROTATED)] if line.rotated else []
        entries += [(at, STDOUT, text) for text in kept] + [(at, SYSTEM, text) for text in remarks]
        found = [point for text in kept for point in costs.points(at, text)]
        points += [(at, step, name, float(value)) for _, step, name, value in found]
    entries += [(remark[0], SYSTEM, remark[1])] if remark else []
    after = replace(
        taken,
        place=place,
        lines=taken.lines + len(entries),
        points=taken.points + len(points),
        kept=limit.kept,
        dropped=limit.dropped,
        costs=costs.memory,
    )
    return Piece(entries, points, after)


@dataclass(frozen=True)
class Followed:
    """The stored progress of one replica's log, as of ``revision``."""

    attempt: Attempt
    replica: str
    revision: int
    taken: Taken


def followed(attempt: Attempt, replica: str) -> Followed:
    of = {"attempt": attempt, "replica": replica}
    row = FollowedLog.objects.filter(**of).first()
    if row is None:
        ensure(FollowedLog, **of)
        row = FollowedLog.objects.get(**of)
    return Followed(attempt, replica, row.revision, Taken.from_json(row.taken))


@transaction.atomic
def take(log: Followed, fresh: Piece, *, over: bool = False) -> Followed:
    """Store a piece, and return the new progress. ``over``: the log is complete.

    Raises Overtaken without storing anything.
    """
    rows = FollowedLog.objects.filter(attempt=log.attempt, replica=log.replica, revision=log.revision)
    if not rows.update(revision=F("revision") + 1, taken=asdict(fresh.taken)):
        raise Overtaken
    if not Job.objects.filter(pk=log.attempt.job_id, attempt=log.attempt.number).exists():
        raise Overtaken
    job, attempt, replica = log.attempt.job_id, log.attempt, log.replica
    if fresh.entries:
        first = log.taken.lines + 1
        store.append_logs(job_id=job, attempt=attempt, replica=replica, first=first, lines=fresh.entries)
    if fresh.points:
        first = log.taken.points + 1
        begun = partial(job_spans.note_first_point, attempt, replica)
        store.append_metrics(
            job_id=job, attempt=attempt, replica=replica, first=first, points=fresh.points, on_first=begun
        )
    if over:
        Replica.objects.filter(attempt=log.attempt, name=log.replica).update(flushed=True)
    return replace(log, revision=log.revision + 1, taken=fresh.taken)
