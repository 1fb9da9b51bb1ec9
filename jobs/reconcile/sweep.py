"""The sweep over all active jobs. It repairs what a lost hint or a crash has left, and admits waiting jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models import Count, F, Q

from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef, AttemptView, JointObserver
from jobs.lifecycle.states import ACTIVE, JobState
from jobs.lifecycle.steadiness import Reading, ReplicaReading, Watch
from jobs.models import Attempt, Job, Replica
from jobs.reconcile.admission import Explanations, admit_waiting
from jobs.reconcile.reconciler import reconcile, seen_of
from jobs.spec.quantities import span
from portal.common.monitoring import heartbeat, metrics
from portal.common.outages import is_lost
from quota.selectors import recalls

_log = logging.getLogger(__name__)


def sweep(now: datetime, watch: Watch | None = None, explanations: Explanations | None = None) -> int:
    """Reconcile every active job once and return their number. Takes one query if there is none.

    Jobs that wait for quota are admitted together. ``watch`` skips running jobs in which nothing has changed. The
    caller keeps ``watch`` and ``explanations`` from sweep to sweep. A job that fails is logged and does not delay the
    others.
    """
    watch, explanations = watch or Watch(), explanations or Explanations()
    counts = dict(Job.objects.filter(state__in=ACTIVE).values_list("state").annotate(Count("pk")))
    if not counts:
        return 0
    waits = Q(state=JobState.QUEUED, cancel_requested=None)
    moving = Job.objects.filter(state__in=ACTIVE).exclude(waits).order_by("created")
    running = _readings() if JobState.RUNNING in counts else {}
    views = _views([ref for _, ref, _ in running.values()])
    for pk in list(moving.values_list("pk", flat=True)):
        if pk in running:
            _one(partial(_look_at, pk, running[pk], views, watch, now), pk)
        else:
            _one(partial(reconcile, pk, clock=lambda: now), pk)
    watch.keep_only(running)
    if JobState.QUEUED in counts:
        for pk in admit_waiting(now, explanations):
            _one(partial(reconcile, pk, clock=lambda: now), pk)
    return sum(counts.values())


# The columns that a sweep reads of a running job: its reading without the backend's view, the attempt to observe at the
# backend, and the deadline of the attempt.
_Row = tuple[Callable[[AttemptView | None], Reading], AttemptRef, Callable[[], datetime]]


def _readings() -> dict[UUID, _Row]:
    """Read all running jobs, in three queries."""
    running = Job.objects.filter(state=JobState.RUNNING)
    replicas: dict[UUID, list[ReplicaReading]] = {}
    rows = Replica.objects.filter(attempt__job__in=running, attempt__number=F("attempt__job__attempt")).order_by("pk")
    for attempt, *columns in rows.values_list("attempt_id", *ReplicaReading._fields):
        replicas.setdefault(attempt, []).append(ReplicaReading(*columns))
    recalled = recalls()
    attempts = Attempt.objects.filter(job__in=running, number=F("job__attempt"))
    names = ("pk", "number", "created", *(f"job__{name}" for name in _JOB))
    found: dict[UUID, _Row] = {}
    for pk, number, created, job, revision, cancelled, rehearsal_, timeout, namespace in attempts.values_list(*names):
        quiet = cancelled is None and rehearsal_ is None and (job, number) not in recalled
        members = tuple(replicas.get(pk, ()))
        reading = partial(Reading, JobState.RUNNING, revision, quiet, members)
        found[job] = reading, AttemptRef(str(job), str(pk), number, namespace), partial(_deadline, created, timeout)
    return found


_JOB = ("id", "revision", "cancel_requested", "rehearsal", "spec__timeout", "namespace__name")


def _deadline(created: datetime, timeout: str) -> datetime:
    return created + span(timeout)


def _views(refs: Sequence[AttemptRef]) -> Mapping[str, AttemptView | None]:
    """Observe the attempts together if the backend can; one that is absent from the result is observed on its own."""
    backend = backend_factory.current() if refs else None
    return backend.observe_many(refs) if isinstance(backend, JointObserver) else {}


def _look_at(job_id: UUID, row: _Row, views: Mapping[str, AttemptView | None], watch: Watch, now: datetime) -> None:
    """Reconcile a running job unless nothing has changed since it was last reconciled."""
    reading_with, ref, deadline = row
    reading = reading_with(views[ref.attempt_id] if ref.attempt_id in views else seen_of(ref))
    if not watch.skips(job_id, reading, now):
        reconcile(job_id, clock=lambda: now)
        watch.reconciled(job_id, reading, now, deadline)


def _one(move: Callable[[], object], job_id: UUID) -> None:
    heartbeat.OF_PROCESS.beat()
    metrics.SWEEP_JOBS.inc()
    try:
        move()
    except Exception as error:
        if is_lost(error):  # it concerns all jobs
            raise
        metrics.SWEEP_ERRORS.labels("job").inc()
        _log.exception("Job %s could not be moved on; the next sweep tries again.", job_id)
