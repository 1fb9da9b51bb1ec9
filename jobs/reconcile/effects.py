"""Implementation of the effects that the lifecycle requests.

A standing effect returns the event that follows, or None while there is none yet. An immediate effect changes rows in
the transaction that changes the state. Every effect is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from jobs.launch import roles
from jobs.lifecycle import state_machine
from jobs.lifecycle.state_machine import Effect, Event
from jobs.models import Attempt, Job, Replica
from jobs.models.streams import StreamHead
from jobs.reconcile import building, launching, stopping
from jobs.selectors import elastic_jobs
from jobs.selectors.admission import reservation_request, waiting
from jobs.selectors.attempts import spec_of, token_of
from jobs.streams import store
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from quota import ledger
from rbac.selectors import digest_of


# --- Standing --------------------------------------------------------------------------------------------------------
def perform(effect: Effect, job: Job) -> Event | None:
    """Perform a standing effect of the job as it was loaded, and return the event that follows, if any."""
    return _STANDING[type(effect)](job)


def _reserve(job: Job) -> Event:
    verdict = ledger.reserve(job.namespace, reservation_request(job))
    if verdict.admitted:
        grow_to_requested(job)
        return state_machine.QuotaReserved(job.attempt)
    return state_machine.QuotaRefused(job.attempt, waiting(verdict.why))


def grow_to_requested(job: Job) -> None:
    """Set the first number of trainers of an elastic job, in the transaction of the admission.

    The job gets its desired number if no other job waits for that capacity, otherwise its minimum. It grows later, as
    capacity becomes free.
    """
    if not elastic_jobs.is_elastic(job):
        return
    spec = spec_of(job)
    wanted, least = spec.trainer.replicas, spec.trainer.min
    if wanted > least and not ledger.take_more(
        namespace=job.namespace, job=job.pk, attempt=job.attempt, amounts=roles.amounts(spec)
    ):
        Job.objects.filter(pk=job.pk).update(trainers=least)
        job.trainers = least


_STANDING: Mapping[type[Effect], Callable[[Job], Event | None]] = {
    state_machine.Reserve: _reserve,
    state_machine.Build: building.build,
    state_machine.Launch: launching.launch,
    state_machine.Stop: stopping.stop,
}


# --- Immediate -------------------------------------------------------------------------------------------------------
def commit(effect: Effect, job: Job) -> None:
    """Perform an immediate effect, inside the transaction that changes the state."""
    _IMMEDIATE[type(effect)](job, effect.attempt)


def commit_together(due: Sequence[tuple[Effect, Job]]) -> None:
    """Perform the immediate effects of many jobs.

    Attempts take two statements in all, and the readers of a namespace are notified once.
    """
    opened = [(job, effect.attempt) for effect, job in due if isinstance(effect, state_machine.OpenAttempt)]
    published = [job for effect, job in due if isinstance(effect, state_machine.Publish)]
    _open_attempts(opened)
    publish_together([(job.pk, job.namespace.name) for job in published])
    for effect, job in due:
        if not isinstance(effect, (state_machine.OpenAttempt, state_machine.Publish)):
            commit(effect, job)


def _open_attempt(job: Job, number: int) -> None:
    _open_attempts([(job, number)])


def _open_attempts(opened: Sequence[tuple[Job, int]]) -> None:
    now = wall_clock()
    attempts = [Attempt(job=job, number=number, created=now) for job, number in opened]
    for attempt in attempts:
        attempt.token_digest = digest_of(token_of(attempt))
    Attempt.objects.bulk_create(attempts)
    Replica.objects.bulk_create(
        Replica(attempt=attempt, name=f"{role}-{index}", role=role, index=index)
        for attempt in attempts
        for role, index, _ in roles.each_replica(spec_of(attempt.job))
    )


def _close_attempt(job: Job, number: int) -> None:
    Attempt.objects.filter(job=job, number=number, finished=None).update(finished=wall_clock())


def _release_quota(job: Job, number: int) -> None:
    ledger.release(job=job.pk, attempt=number)


def _open_streams(job: Job, number: int) -> None:
    StreamHead.objects.filter(job=job).update(closed=False)


def _close_streams(job: Job, number: int) -> None:
    store.close(job.pk)


def _publish(job: Job, number: int) -> None:
    publish(job)


def publish(job: Job) -> None:
    """Notify the readers of the job. The doorbell rings after the commit."""
    publish_together([(job.pk, job.namespace.name)])


def publish_together(changed: Sequence[tuple[UUID, str]]) -> None:
    """Notify the readers of many jobs, given with the names of their namespaces. Each topic rings once."""
    for topic in dict.fromkeys(f"status:ns:{namespace}" for _, namespace in changed):
        ring(topic)
    for job, _ in changed:
        ring(f"status:{job}")


_IMMEDIATE: Mapping[type[Effect], Callable[[Job, int], None]] = {
    state_machine.OpenAttempt: _open_attempt,
    state_machine.CloseAttempt: _close_attempt,
    state_machine.ReleaseQuota: _release_quota,
    state_machine.OpenStreams: _open_streams,
    state_machine.CloseStreams: _close_streams,
    state_machine.Publish: _publish,
}
