"""Writes of stalls and stragglers: the state of an attempt and its event, in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.lifecycle.progress.reported import Reported
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, JobEvent
from jobs.reconcile import effects

STALLED, PROGRESS, STRAGGLER = "stalled", "progress", "straggler"


class Entry(NamedTuple):
    """Event of the timeline."""

    kind: str
    text: str
    replica: str = ""


@transaction.atomic
def record(job_id: UUID, attempt: UUID, revision: int, after: Reported, entry: Entry | None, now: datetime) -> bool:
    """Write what is reported from now on, with its event.

    Return False, and write nothing, if another process has changed the job since its revision was read: the caller
    decides again. So a decision that is made twice is written once.
    """
    running = Job.objects.filter(pk=job_id, revision=revision, state=JobState.RUNNING)
    if not running.update(revision=F("revision") + 1):
        return False
    job = Job.objects.select_related("namespace").get(pk=job_id)
    Attempt.objects.filter(pk=attempt).update(progress=after.to_json())
    if entry is not None:
        JobEvent.objects.create(
            job=job, attempt=job.attempt, at=now, replica=entry.replica, kind=entry.kind, text=entry.text
        )
    effects.publish(job)
    return True
