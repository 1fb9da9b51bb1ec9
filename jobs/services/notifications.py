"""Notifications about a job: events of its timeline, hints to the reconciler, and rings for its readers."""

from __future__ import annotations

from uuid import UUID

from jobs import tasks
from jobs.models import Job, JobEvent
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring


def notify(job: Job) -> None:
    """Notify the reconciler and the readers of the job, after the commit."""
    tasks.hint(job.pk)
    ring(f"status:{job.pk}")
    ring(f"status:ns:{job.namespace.name}")


def happened(job_id: UUID, attempt: int, replica: str, *, kind: str, text: str) -> None:
    JobEvent.objects.create(job_id=job_id, attempt=attempt, at=wall_clock(), replica=replica, kind=kind, text=text)
