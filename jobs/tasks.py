"""Hints by Celery: look at this job now. A lost one costs the time until the next sweep."""

from __future__ import annotations

import logging
from uuid import UUID

from celery import shared_task
from django.db import transaction

from jobs.reconcile import reconciler

_log = logging.getLogger(__name__)


@shared_task  # type: ignore[untyped-decorator]
def reconcile_job(job_id: str) -> None:
    """Move one job on."""
    reconciler.reconcile(job_id)


def hint(job_id: UUID | str) -> None:
    """Have the job looked at soon, once the present transaction is committed. Never raises."""
    transaction.on_commit(lambda: _send(str(job_id)), robust=True)


def _send(job_id: str) -> None:
    try:
        reconcile_job.apply_async((job_id,), retry=False)
    except Exception:  # noqa: BLE001  a broker fails in many ways, and none may fail the caller
        _log.warning("No hint could be sent for job %s; the sweep will find it.", job_id, exc_info=True)
