"""Bounds of the history of active jobs: events, changes of state and of the number of trainers.

``jobs.maintenance.retention`` removes the history of ended jobs by its age. A job that runs for months adds rows all
the time, so each table keeps the newest rows of a job and the rows that decisions need. An event of the timeline
records since when it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max

from jobs.lifecycle import throughput
from jobs.lifecycle.replica_facts import LOSSES
from jobs.lifecycle.states import ACTIVE
from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Scaling, Transition
from portal.common.doorbell import ring
from runtime.messages import Template

# The kinds of the events that record since when the timeline has all events, and all changes of state.
TRIMMED, TRIMMED_STATES = "trimmed", "trimmed-states"
_MARKERS = (TRIMMED, TRIMMED_STATES)
# Rows that are removed in one transaction: on SQLite it blocks all other writers.
_BATCH = 2000


class Bound(NamedTuple):
    """Number of rows of a job that a table keeps, and the event that records the removal of earlier ones."""

    most: int
    marker: str
    text: Template | None


# A replica adds at most ``reports.EVENTS_LIMIT`` events in one attempt.
BOUNDS: Mapping[type[Any], Bound] = {
    JobEvent: Bound(20_000, TRIMMED, messages.EVENTS_TRIMMED),
    Transition: Bound(
        5000,
        TRIMMED_STATES,
        messages.STATE_CHANGES_TRIMMED,
    ),
    Scaling: Bound(5000, "", None),
}


def trim(deadline: float) -> bool:
    """Remove the rows of active jobs beyond ``BOUNDS``.

    Return False if ``deadline`` (monotonic time) passed before the end.
    """
    return all(_trim(table, bound, deadline) for table, bound in BOUNDS.items())


def _trim(table: type[Any], bound: Bound, deadline: float) -> bool:
    rows = table.objects.filter(job__state__in=ACTIVE).order_by()
    counts = rows.values_list("job").annotate(rows=Count("pk")).filter(rows__gt=bound.most)
    return all(_trim_job(job_id, table, bound, deadline) for job_id, _ in list(counts))


def _trim_job(job_id: UUID, table: type[Any], bound: Bound, deadline: float) -> bool:
    of_job = table.objects.filter(job_id=job_id)
    pk, at = of_job.order_by("-pk").values_list("pk", "at")[bound.most - 1]
    old = of_job.filter(pk__lt=pk).order_by("pk")
    while True:
        with transaction.atomic():
            job = Job.objects.select_for_update().filter(pk=job_id, state__in=ACTIVE).first()
            if job is None:  # it was deleted, or has ended, and retention removes its history
                return True
            needed = _needed(job) if table is JobEvent else ()
            batch = list(old.exclude(pk__in=needed).values_list("pk", flat=True)[:_BATCH])
            if not batch:
                return True
            of_job.filter(pk__in=batch).delete()
            _mark(job, at, bound)
        if time.monotonic() >= deadline:
            return False


def _needed(job: Job) -> Collection[int]:
    """Return the events to keep because decisions read them.

    These are the last arrival and the last departure of each kind of each replica of the present attempt, the job's
    last checkpoint, and the events that record a removal.
    """
    events = JobEvent.objects.filter(job=job).order_by()
    moves = events.filter(attempt=job.attempt, kind__in={throughput.JOINED, *throughput.LEFT, *LOSSES})
    last = moves.values("replica", "kind").annotate(last=Max("pk")).values_list("last", flat=True)
    checkpoint = events.filter(kind="checkpoint").aggregate(last=Max("pk"))["last"]
    markers = events.filter(kind__in=_MARKERS).values_list("pk", flat=True)
    return {*last, *markers, *([] if checkpoint is None else [checkpoint])}


def _mark(job: Job, at: datetime, bound: Bound) -> None:
    """Replace the event that records since when the timeline is complete."""
    if bound.text is None:
        return
    text = bound.text(count=f"{bound.most:,}")
    JobEvent.objects.filter(job=job, kind=bound.marker).delete()
    JobEvent.objects.create(job=job, attempt=job.attempt, at=at, kind=bound.marker, text=text)
    ring(f"status:{job.pk}")
