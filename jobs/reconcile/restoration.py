"""What a database that was restored to an earlier state knows of the attempts at the backend, and the repair.

An attempt at the backend is *unknown* if the database does not have it as the present attempt of an active job: it was
started after the restored state. It is stopped and removed, so that no two attempts of a job run at once. An attempt
of the database is *missing* if the backend does not have it: it has ended since. Its job starts again, or is cancelled.
All others go on: their agents send again what the database has lost.

Runs while the processes of the portal are stopped. Every step may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Max

from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef, ClusterBackend, Phase
from jobs.launch import coordination_accounts
from jobs.lifecycle.state_machine import CancelRequested, Interrupted
from jobs.lifecycle.states import ACTIVE, TERMINAL, JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, Transition
from jobs.reconcile import reconciler
from rbac.models import Namespace

# States in which the backend has the present attempt, unless it has ended.
_LAUNCHED = frozenset({JobState.REGISTERING, JobState.RUNNING, JobState.STOPPING})
_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING})
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Survey:
    """Attempts of database and backend, compared. ``point``: the last change of state that the database knows."""

    point: datetime | None
    continuing: tuple[AttemptRef, ...]
    unknown: tuple[AttemptRef, ...]
    missing: tuple[AttemptRef, ...]

    def counts(self) -> Mapping[str, object]:
        """Return the numbers of attempts, for the audit log."""
        return {
            "point": self.point.isoformat() if self.point else "",
            "continuing": len(self.continuing),
            "unknown": len(self.unknown),
            "missing": len(self.missing),
        }


def survey() -> Survey:
    """Compare the attempts of the database with those of the backend. Raises BackendUnavailable."""
    present = _present_attempts()
    seen = list(backend_factory.current().attempts(set(Namespace.objects.values_list("name", flat=True))))
    found = {ref.attempt_id for ref in seen}
    return Survey(
        Transition.objects.aggregate(Max("at"))["at__max"],
        tuple(ref for ref in seen if ref.attempt_id in present),
        tuple(ref for ref in seen if ref.attempt_id not in present),
        tuple(ref for ref, state in present.values() if state in _LAUNCHED and ref.attempt_id not in found),
    )


def _present_attempts() -> dict[str, tuple[AttemptRef, str]]:
    """Return the present attempts of active jobs with their jobs' states, by id."""
    rows = Attempt.objects.filter(job__state__in=ACTIVE).select_related("job__namespace")
    return {
        str(row.pk): (AttemptRef(str(row.job_id), str(row.pk), row.number, row.job.namespace.name), row.job.state)
        for row in rows
        if row.number == row.job.attempt
    }


# --- Unknown attempts ------------------------------------------------------------------------------------------------
def stop_unknown(
    refs: Iterable[AttemptRef],
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> list[AttemptRef]:
    """Stop the attempts and remove them from backend and etcd. Return those that still run after ``seconds``.

    Raises BackendUnavailable.
    """
    backend, left, deadline = backend_factory.current(), list(refs), clock() + seconds
    while True:
        for ref in left:
            backend.stop(ref, timedelta(seconds=settings.STOP_GRACE_SECONDS))
        left = [ref for ref in left if not _removed(backend, ref)]
        if not left or clock() >= deadline:
            return left
        pause(_PAUSE_SECONDS)


def _removed(backend: ClusterBackend, ref: AttemptRef) -> bool:
    view = backend.observe(ref)
    if any(replica.phase in _ALIVE for replica in view.replicas):
        return False
    backend.cleanup(ref)
    coordination_accounts.clear(ref)
    return backend.observe(ref).gone


# --- Missing attempts ------------------------------------------------------------------------------------------------
def end_missing(refs: Iterable[AttemptRef], point: datetime | None, *, cancel: bool = False) -> None:
    """End the attempts in the database: each job waits for its next attempt or, with ``cancel``, is cancelled."""
    state = f"{point:%Y-%m-%d %H:%M:%S} UTC" if point else ""
    event = CancelRequested if cancel else Interrupted
    for ref in refs:
        if Job.objects.filter(pk=ref.job_id).exclude(state=JobState.STOPPING).exists():
            reconciler.cause(ref.job_id, event, why=messages.ATTEMPT_ENDED_AFTER_RESTORED_STATE(time=state))
        reconciler.reconcile(ref.job_id, rest=TERMINAL | {JobState.QUEUED})


# --- Numbers of attempts ---------------------------------------------------------------------------------------------
def skip_used_numbers(unknown: Iterable[AttemptRef]) -> dict[UUID, int]:
    """Give each waiting job an attempt number that no attempt has used; return those that were changed.

    Checkpoints and keys in etcd are found by number: those of an unknown attempt are not taken for the next one's.
    """
    backend, used = backend_factory.current(), _numbers(unknown)
    changed = {}
    for job in Job.objects.filter(state=JobState.QUEUED):
        last = max(used.get(str(job.pk), 0), backend.last_checkpoint(str(job.pk)))
        if last >= job.attempt and reconciler.skip_numbers(job, last):
            changed[job.pk] = last + 1
    return changed


def _numbers(refs: Iterable[AttemptRef]) -> dict[str, int]:
    """Return the highest number of an attempt by job id: of those given, and of those with an account or keys in etcd.

    What the latter have left in etcd is removed if the database does not have them.
    """
    highest: dict[str, int] = {}
    left_over = coordination_accounts.left_by_unknown_attempts()
    for job_id, number in [*((ref.job_id, ref.number) for ref in refs), *left_over]:
        highest[job_id] = max(number, highest.get(job_id, 0))
    return highest
