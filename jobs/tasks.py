"""Celery tasks that reconcile a job at once. A lost task costs the time until the next sweep."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from celery import current_app, shared_task
from django.conf import settings
from django.db import DatabaseError, transaction

from jobs.reconcile import reconciler
from portal.common.hint_sender import HintSender
from portal.common.monitoring import log_context
from portal.common.outages import is_lost, log_failure
from portal.common.redis_client import client_of

_log = logging.getLogger(__name__)

# Messages that may wait in a Redis, about 1.2 kB each. Without a limit they fill it while no worker runs, and kombu's
# worker cannot start on a full Redis.
MOST_WAITING = 10_000


class TooManyWaiting(Exception):
    """MOST_WAITING messages wait for the worker."""


@shared_task  # type: ignore[untyped-decorator]
def reconcile_job(job_id: str) -> None:
    """Reconcile one job. Without a database it does nothing: the sweep finds the job once that is back."""
    try:
        with log_context.use(task=reconcile_job.name):
            reconciler.reconcile(job_id)
    except DatabaseError as error:
        if not is_lost(error):
            raise
        log_failure(_log, error, "Job %s was not reconciled; the sweep will find it.", job_id)


def hint(job_id: UUID | str) -> None:
    """Reconcile the job soon after the present transaction commits. Never raises."""
    transaction.on_commit(lambda: _send(str(job_id)), robust=True)


def _send(job_id: str) -> None:
    if not settings.BROKER_URL.startswith("filesystem://"):  # a server may let the caller wait
        _hints.put(job_id)
        return
    try:
        _deliver([job_id])
    except Exception:  # noqa: BLE001  a broker raises many kinds of errors, and none may fail the caller
        _log.warning("No hint could be sent for job %s; the sweep will find it.", job_id, exc_info=True)


def _deliver_to_redis(job_ids: Sequence[str]) -> None:
    """Send the hints unless too many wait. Raises TooManyWaiting, and what the clients of Redis raise."""
    queue = str(current_app.conf.task_default_queue)
    if client_of(settings.BROKER_URL).llen(queue) >= MOST_WAITING:
        raise TooManyWaiting(f"{MOST_WAITING} messages wait for the worker. See that it runs.")
    _deliver(job_ids)


def _deliver(job_ids: Sequence[str]) -> None:
    for job_id in job_ids:
        reconcile_job.apply_async((job_id,), retry=False)


_hints = HintSender(
    _deliver_to_redis, what="The broker of REGATTA_BROKER_URL", without="the sweep does the work until then"
)
