"""Stop of an attempt, and the removal of what it leaves."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from jobs import storage_usage
from jobs.backends import factory as backend_factory
from jobs.backends.base import BackendUnavailable
from jobs.builds import builders
from jobs.launch import coordination_accounts
from jobs.models import Attempt, Job
from jobs.selectors.attempts import INTERRUPTION_GRACE, present_attempt, ref_of, stop_grace, was_launched
from jobs.spec.model import JobSpec

_log = logging.getLogger(__name__)


def stop(job: Job) -> None:
    """Stop the replicas of the present attempt within its grace period."""
    _stop_within(job, stop_grace(job))


def give_up_build(job: Job) -> None:
    """Stop the build of an attempt that ends before its launch, unless another job needs the build."""
    spec = JobSpec.from_json(job.spec)
    try:
        builders.of(spec).give_up(job, spec)
    except OSError:
        _log.warning("The build of job %s continues until its time limit.", job.pk, exc_info=True)


def shorten_grace(job: Job) -> None:
    """Shorten the grace period of a stopping job to that of an interruption, because the portal itself stops."""
    _stop_within(job, min(timedelta(seconds=settings.STOP_GRACE_SECONDS), INTERRUPTION_GRACE))


def _stop_within(job: Job, grace: timedelta) -> None:
    attempt = present_attempt(job)
    if attempt is None:
        return
    try:
        backend_factory.current().stop(ref_of(job, attempt), grace)
    except BackendUnavailable as problem:
        # Without a traceback: every sweep tries again until the backend answers.
        _log.warning("Job %s could not be stopped; the sweep tries again. %s", job.pk, problem)


def cleanup_attempt(job: Job, number: int, *, over: bool) -> None:
    """Remove an ended attempt from the backend and the coordination store.

    An attempt that was never launched has left nothing there. With ``over``, also remove the data that was kept for a
    next attempt. Runs after the commit; leftovers are harmless.
    """
    attempt = Attempt.objects.filter(job=job, number=number).first()
    if attempt is not None and was_launched(job, number):
        try:
            backend_factory.current().cleanup(ref_of(job, attempt))
        except OSError:
            _log.warning("Attempt %s of job %s could not be cleaned up.", number, job.pk, exc_info=True)
        coordination_accounts.clear(ref_of(job, attempt))
    if over:
        backend_factory.current().forget(str(job.pk))
    storage_usage.measure_checkpoints(job)
