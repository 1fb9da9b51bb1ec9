"""Takes in what was read of a log: lines, the points in them, and how far that is, in one transaction, through the
same door as what agents send. Whoever reads beside another, or for an attempt that was replaced, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import F

from jobs.log_follower.cursor import Line, Place
from jobs.models import Attempt, Job, Replica
from jobs.models.streams import FollowedLog
from jobs.streams import store
from portal.common.rows import ensure
from runtime.log_lines import Cap, shown
from runtime.metric_parser import CostReader

STDOUT, SYSTEM = "stdout", "system"
ROTATED = "The node has begun another file for the log; lines before this one may be missing."
_SECOND = 10**9


class Overtaken(Exception):
    """Somebody else has taken in more of this log, or the attempt was replaced."""


@dataclass(frozen=True)
class Taken:
    """How far a log was taken in: its place, how many lines and points it has given, what the cap let through, and
    what the reader of costs remembers."""

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
    """What becomes of lines: entries of the log, points, and how far that is."""

    entries: Sequence[Entry]
    points: Sequence[Point]
    taken: Taken


def piece(
    taken: Taken, lines: Sequence[Line], place: Place, cap: int, remark: tuple[float, str] | None = None
) -> Piece:
    """Pure. ``cap``: bytes that are kept of the replica's output; ``remark``: when and what the platform adds."""
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
    """One replica's log, as it was taken in when this was read."""

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
    """``over``: nothing more comes. Raises Overtaken, and nothing is taken."""
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
        store.append_metrics(job_id=job, attempt=attempt, replica=replica, first=first, points=fresh.points)
    if over:
        Replica.objects.filter(attempt=log.attempt, name=log.replica).update(flushed=True)
    return replace(log, revision=log.revision + 1, taken=fresh.taken)
