"""Retention of the rows of ended jobs: rows older than the periods of the settings are removed.

A pass visits jobs in the order in which they ended. ``models.Retention`` stores the progress per kind, so a pass reads
only the jobs that became old enough since the previous pass. Each job takes one short transaction. A pass stops after
``PASS_SECONDS`` and continues in the next sweep. Repeating it removes nothing more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs import storage_usage
from jobs.lifecycle.states import TERMINAL
from jobs.maintenance import history
from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Retention, Scaling, Transition
from jobs.models.streams import Block, FollowedLog, MetricNames, Source, StreamHead
from portal.common.doorbell import ring
from portal.common.rows import ensure
from quota import retention as quota_retention
from quota import storage
from quota.models import Kind
from rbac import retention as account_retention

_log = logging.getLogger(__name__)

EVERY = timedelta(hours=1)
PASS_SECONDS = 2.0
BATCH = 200
# Later than this after a job has ended, agents repeat no batch and clients repeat no submission.
NUMBERING = timedelta(days=7)
EVENT = "retention"
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Rule:
    """Removal of one kind of rows of each job that ended longer than ``age`` ago. None keeps them for ever."""

    age: Callable[[], timedelta | None]
    remove: Callable[[Job], None]


def _days(setting: str) -> Callable[[], timedelta | None]:
    def age() -> timedelta | None:
        days: float = getattr(settings, setting)
        return timedelta(days=days) if days else None

    return age


def _remove_numbering(job: Job) -> None:
    """Remove the numbers and keys that make repeated batches and submissions idempotent."""
    Source.objects.filter(attempt__job=job).delete()
    FollowedLog.objects.filter(attempt__job=job).delete()
    Job.objects.filter(pk=job.pk).exclude(idempotency_key=None).update(idempotency_key=None)


def _remove_streams(job: Job) -> None:
    removed, _ = Block.objects.filter(job=job).delete()
    MetricNames.objects.filter(job=job).delete()
    StreamHead.objects.filter(job=job).update(unsealed=0, closed=True)
    storage.forget(storage_usage.of_job(job, Kind.STREAMS))
    if removed and job.finished is not None:
        text = messages.STREAMS_REMOVED(days=f"{settings.KEEP_STREAMS_DAYS:g}")
        at = job.finished + timedelta(days=settings.KEEP_STREAMS_DAYS)
        JobEvent.objects.create(job=job, attempt=job.attempt, at=at, kind=EVENT, text=text)
        ring(f"status:{job.pk}")


def _remove_history(job: Job) -> None:
    JobEvent.objects.filter(job=job).delete()
    Scaling.objects.filter(job=job).delete()
    Transition.objects.filter(job=job).delete()


RULES: Mapping[str, Rule] = {
    "numbering": Rule(lambda: NUMBERING, _remove_numbering),
    "streams": Rule(_days("KEEP_STREAMS_DAYS"), _remove_streams),
    "history": Rule(_days("KEEP_HISTORY_DAYS"), _remove_history),
}


class Retaining:
    """Runs a pass at most once per ``EVERY``, and at the next sweep if a pass ran out of time."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._next is None or now >= self._next:
            done = prune(now)
            self._next = now + EVERY if done else now


def prune(now: datetime, *, seconds: float = PASS_SECONDS) -> bool:
    """Remove all rows that are old enough. Return False if ``seconds`` passed before the end."""
    deadline = time.monotonic() + seconds
    finished = [_prune(kind, rule, now, deadline) for kind, rule in RULES.items()]
    finished.append(history.trim(deadline))
    quota_retention.prune(now)
    return account_retention.prune(now) and all(finished)


def _prune(kind: str, rule: Rule, now: datetime, deadline: float) -> bool:
    age = rule.age()
    if age is None:
        return True
    ensure(Retention, kind=kind, until=_BEGINNING)
    until = Retention.objects.get(pk=kind).until
    while (end := _end_of_batch(until, now - age)) is not None:
        ended = Job.objects.filter(finished__gt=until, finished__lte=end, state__in=TERMINAL)
        for pk in ended.order_by("finished").values_list("pk", flat=True):
            _remove(pk, end, rule)
        Retention.objects.filter(pk=kind).update(until=end)
        until = end
        if time.monotonic() >= deadline:
            return _end_of_batch(until, now - age) is None
    return True


def _end_of_batch(after: datetime, cutoff: datetime) -> datetime | None:
    """Return when the last job of the next batch ended; None if there is none.

    Jobs that ended in the same sweep have the same time. A batch never ends between them.
    """
    moments = Job.objects.filter(finished__gt=after, finished__lte=cutoff).order_by("finished")
    found = list(moments.values_list("finished", flat=True)[:BATCH])
    return found[-1] if found else None


@transaction.atomic
def _remove(pk: UUID, end: datetime, rule: Rule) -> None:
    """Apply the rule to a job. Remove nothing if the job was retried meanwhile."""
    job = Job.objects.select_for_update().filter(pk=pk, state__in=TERMINAL, finished__lte=end).first()
    if job is not None:
        rule.remove(job)
