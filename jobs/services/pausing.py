"""Pause of a running job, and its end. The sweep repeats what agents have not done yet (``jobs.reconcile.pausing``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.states import JobState
from jobs.lifecycle.wording import in_words
from jobs.messages import pauses as messages
from jobs.models import Attempt, Job
from jobs.reconcile.pausing import bring_about_now
from jobs.selectors.jobs import job_for
from jobs.services.notifications import happened, notify
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.scopes import Scope

# Returns the new state and the text of its event; None: nothing is to be changed.
_Change = Callable[[Pause | None], tuple[Pause, str] | None]

# How long a request waits until all programs have stopped or go on. After that, the sweep goes on with it.
SECONDS = 5.0


def pause(*, actor: User, job_id: UUID | str) -> Job:
    """Stop all trainers of a running job. Raises NotFound, Forbidden, and Conflict if it does not run."""
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state != JobState.RUNNING:
        raise Conflict(messages.NOT_RUNNING())
    if job.spec.get("image"):
        raise Conflict(messages.NEEDS_AGENT())
    now = wall_clock()

    def begin(before: Pause | None) -> tuple[Pause, str] | None:
        if before is not None and before.on:
            return None  # clients repeat a request that was not answered
        after = Pause.begin(before, actor.username, job.spec["framework"], now)
        return after, messages.PAUSED_BY(name=actor.username)

    return _change(actor, job, "pause", begin)


def resume(*, actor: User, job_id: UUID | str) -> Job:
    """Let a paused job go on. Raises NotFound, Forbidden, and Conflict if it does not run."""
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state != JobState.RUNNING:
        raise Conflict(messages.NOT_RUNNING())
    now = wall_clock()

    def end(before: Pause | None) -> tuple[Pause, str] | None:
        if before is None or not before.on:
            return None
        length = in_words(timedelta(seconds=round(now.timestamp() - before.since)))
        return before.resume(actor.username, now), messages.RESUMED_BY(name=actor.username, length=length)

    return _change(actor, job, "resume", end)


def _change(actor: User, job: Job, kind: str, change: _Change) -> Job:
    with transaction.atomic():
        # The job before the attempt, as the reconciler locks them; and it may have ended since.
        runs = Job.objects.select_for_update().filter(pk=job.pk, attempt=job.attempt, state=JobState.RUNNING).exists()
        attempt = Attempt.objects.select_for_update().filter(job=job, number=job.attempt).first() if runs else None
        if attempt is None:
            raise Conflict(messages.NOT_RUNNING())
        if (changed := change(Pause.from_json(attempt.pause))) is not None:
            after, text = changed
            attempt.pause = after.to_json()
            attempt.save(update_fields=["pause"])
            Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1)
            audit_log.record(f"job.{kind}", str(job.pk), actor=actor, namespace=job.namespace)
            happened(job.pk, job.attempt, "", kind=kind, text=text)
            notify(job)
    bring_about_now(job.pk, SECONDS)
    return job_for(actor, job.pk, Scope.JOB_READ)
