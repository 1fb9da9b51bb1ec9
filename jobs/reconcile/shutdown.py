"""Shutdown of the portal: stop every running attempt, so that its job continues at the next start."""

from __future__ import annotations

import logging
import threading
import time
from uuid import UUID

from jobs.backends import factory as backend_factory
from jobs.builds import builders
from jobs.lifecycle.state_machine import HOLDS_QUOTA, TERMINAL, Interrupted, InvalidTransition, JobState
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.reconcile import reconciler, stopping

_log = logging.getLogger(__name__)


def interrupt_all(*, seconds: float = 5.0) -> int:
    """Stop every running attempt because the portal itself stops. Return how many had not ended after ``seconds``.

    Each job goes back to the queue for its next attempt. An attempt that has not ended in time stays STOPPING, and the
    next start of the portal continues with it. The caller must have stopped the sweep and the worker before.
    Returns 0 without stopping an attempt if the backend's replicas outlive the portal.
    """
    if backend_factory.current().outlives_the_portal:
        builders.current().end_all()
        return 0
    deadline = time.monotonic() + seconds
    for job in Job.objects.filter(state=JobState.STOPPING):
        _shorten_grace(job)
    running = Job.objects.filter(state__in=HOLDS_QUOTA).values_list("pk", flat=True)
    waiting = [pk for pk in running if _interrupt(pk)]
    builders.current().end_all()
    pause = threading.Event()
    while waiting and time.monotonic() < deadline:
        waiting = [pk for pk in waiting if not _at_rest(pk)]
        if waiting:
            pause.wait(0.05)
    return len(waiting)


def _shorten_grace(job: Job) -> None:
    try:
        stopping.shorten_grace(job)
    except Exception:  # noqa: BLE001  an error of one job must not prevent stopping the others
        _log.exception("Job %s could not be hurried.", job.pk)


def _interrupt(job_id: UUID) -> bool:
    try:
        reconciler.cause(job_id, Interrupted, why=messages.PORTAL_STOPPED())
    except InvalidTransition:
        # The job went back to the queue by itself.
        return False
    except Exception:  # noqa: BLE001  an error of one job must not prevent stopping the others
        _log.exception("Job %s could not be interrupted; the next start looks after it.", job_id)
        return False
    return True


_REST = TERMINAL | {JobState.QUEUED}


def _at_rest(job_id: UUID) -> bool:
    try:
        state = reconciler.reconcile(job_id, rest=_REST)
    except Exception:  # noqa: BLE001  an error of one job must not prevent stopping the others
        _log.exception("Job %s could not be interrupted.", job_id)
        return True
    return state is None or state in _REST
