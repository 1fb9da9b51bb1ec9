"""What is told of a job: to its timeline, to the reconciler, to whoever reads its page."""

from __future__ import annotations

from uuid import UUID

from jobs import tasks
from jobs.models import Job, JobEvent
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring


def notify(job: Job) -> None:
    """After the commit: the reconciler looks at the job, and so do readers."""
    tasks.hint(job.pk)
    ring(f"status:{job.pk}")
    ring(f"status:ns:{job.namespace.name}")


def happened(job_id: UUID, attempt: int, replica: str, *, kind: str, text: str) -> None:
    JobEvent.objects.create(job_id=job_id, attempt=attempt, at=wall_clock(), replica=replica, kind=kind, text=text)
