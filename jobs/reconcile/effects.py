"""Implementation of the effects that the lifecycle requests.

A standing effect returns the event that follows, or None while there is none yet. An immediate effect changes rows in
the transaction that changes the state. Every effect is idempotent.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.conf import settings

from datasets import materialization
from datasets.storage.base import StorageAway, StorageError
from jobs import storage_usage
from jobs.backends import factory as backend_factory
from jobs.backends.base import LaunchFailed
from jobs.builds import builders
from jobs.frameworks.definitions import is_coordinated
from jobs.launch import cluster_namespaces, coordination_accounts, planner
from jobs.lifecycle import state_machine, wording
from jobs.lifecycle.state_machine import Effect, Event
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, Replica
from jobs.models.streams import StreamHead
from jobs.selectors import elastic_jobs
from jobs.selectors.admission import reservation_request, waiting
from jobs.selectors.attempts import (
    INTERRUPTION_GRACE,
    data_gone,
    data_roots,
    grace_of,
    present_attempt,
    present_spec,
    ref_of,
    spec_of,
    token_of,
)
from jobs.spec.model import JobSpec
from jobs.streams import store
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.errors import NotFound
from quota import ledger
from rbac.selectors import digest_of
from runtime import contract
from runtime.errors import TEMPORARY
from runtime.messages import Message

_log = logging.getLogger(__name__)


# How long after its creation an attempt is prepared again after a temporary failure of the storage or the machine.
PREPARING = timedelta(minutes=10)
WIRE_SECRET_BYTES = 32


# --- Standing --------------------------------------------------------------------------------------------------------
def perform(effect: Effect, job: Job) -> Event | None:
    """Perform a standing effect of the job as it was loaded, and return the event that follows, if any."""
    return _STANDING[type(effect)](job)


def _reserve(job: Job) -> Event:
    verdict = ledger.reserve(job.namespace, reservation_request(job))
    if verdict.admitted:
        begin_with(job)
        return state_machine.QuotaReserved(job.attempt)
    return state_machine.QuotaRefused(job.attempt, waiting(verdict.why))


def begin_with(job: Job) -> None:
    """Set the first number of trainers of an elastic job, in the transaction of the admission.

    The job gets its desired number if no other job waits for that capacity, otherwise its minimum. It grows later, as
    capacity becomes free.
    """
    if not elastic_jobs.is_elastic(job):
        return
    spec = spec_of(job)
    wanted, least = spec.trainer.replicas, spec.trainer.min
    if wanted > least and not ledger.take_more(
        namespace=job.namespace, job=job.pk, attempt=job.attempt, amounts=planner.amounts(spec)
    ):
        Job.objects.filter(pk=job.pk).update(trainers=least)
        job.trainers = least


def _build(job: Job) -> Event | None:
    spec = JobSpec.from_json(job.spec)
    try:
        view = builders.of(spec).begin(job, spec)
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, messages.CODE_NOT_PREPARED(error=error))
    _ship_build_log(job, view.log)
    if view.problem:
        return state_machine.BuildFailed(job.attempt, view.problem)
    try:
        if view.done is None or not _data_is_here(job):
            return None
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, messages.DATASET_NOT_PREPARED(error=error))
    return state_machine.Built(job.attempt, _starting(present_spec(job)))


def _unprepared(job: Job, error: Exception, why: str) -> Event | None:
    """Return BuildFailed, or None if the next sweep may succeed.

    A temporary error fails no attempt that was created less than PREPARING ago.
    """
    passing = isinstance(error, StorageAway) or (isinstance(error, OSError) and error.errno in TEMPORARY)
    attempt = present_attempt(job)
    if not passing or attempt is None or wall_clock() >= attempt.created + PREPARING:
        return state_machine.BuildFailed(job.attempt, why)
    _log.warning("Job %s cannot be prepared now; the sweep tries again. %s", job.pk, why)
    return None


def _data_is_here(job: Job) -> bool:
    """Return whether the job's dataset is materialized. If not, start or continue it.

    Raises OSError, StorageError, NotFound.
    """
    if gone := data_gone(job, for_good=True):
        raise NotFound(gone)
    return job.dataset_version is None or materialization.prepare(job.dataset_version)


def _ship_build_log(job: Job, log: tuple[str, ...]) -> None:
    attempt = present_attempt(job)
    if log and attempt:
        at = time.time()
        lines = [(at, "system", line) for line in log]
        store.append_logs(job_id=job.pk, attempt=attempt, replica=builders.REPLICA, first=1, lines=lines)


def _starting(spec: JobSpec) -> Message:
    """Return the message of a job that is launched, with its replicas."""
    trainers, servers = wording.trainers(spec.trainer.replicas), wording.pservers(spec.pserver.replicas)
    if not spec.pserver.replicas:
        return messages.STARTING_TRAINERS(trainers=trainers)
    if is_coordinated(spec.framework, spec.pserver.replicas):
        return messages.STARTING_WITH_MASTER(servers=servers, trainers=trainers)
    return messages.STARTING_WITH_PSERVERS(servers=servers, trainers=trainers)


def _launch(job: Job) -> Event | None:
    attempt = present_attempt(job)
    if attempt is None:
        return None
    # Trainers that were requested since have no row yet; ``reconciler._staff`` creates them once the job runs.
    rows = attempt.replicas.filter(role=contract.TRAINER).count()
    spec = planner.scaled(present_spec(job), trainers=rows)
    made = builders.of(spec).made(job, spec)
    ref = ref_of(job, attempt)
    try:
        if not cluster_namespaces.ready(job.namespace):
            return None
        here = replace(site(job), coordination=coordination_accounts.arrange(ref))
        secret = secrets.token_hex(WIRE_SECRET_BYTES)
        plan = planner.make_plan(ref, job.namespace.name, spec, made, here, token_of(attempt), secret)
        backend_factory.current().launch(replace(plan, trusted=job.owner.is_admin))
    except LaunchFailed as failure:
        return state_machine.LaunchFailed(job.attempt, failure.why, retryable=failure.retryable)
    except OSError as error:
        return state_machine.LaunchFailed(
            job.attempt, messages.REPLICAS_NOT_STARTED_BECAUSE(error=error), retryable=True
        )
    return state_machine.Launched(job.attempt)


def _stop(job: Job) -> None:
    _stop_within(job, grace_of(job))
    spec = JobSpec.from_json(job.spec)
    builders.of(spec).give_up(job, spec)


def hurry(job: Job) -> None:
    """Shorten the grace period of a stopping job to that of an interruption, because the portal itself stops."""
    _stop_within(job, min(timedelta(seconds=settings.STOP_GRACE_SECONDS), INTERRUPTION_GRACE))


def _stop_within(job: Job, grace: timedelta) -> None:
    attempt = present_attempt(job)
    if attempt is not None:
        backend_factory.current().stop(ref_of(job, attempt), grace)


def tidy(job: Job, number: int, *, over: bool) -> None:
    """Remove an ended attempt from the backend and the coordination store.

    With ``over``, also remove the data that was kept for a next attempt. Runs after the commit; leftovers are harmless.
    """
    attempt = Attempt.objects.filter(job=job, number=number).first()
    if attempt is not None:
        try:
            backend_factory.current().cleanup(ref_of(job, attempt))
        except OSError:
            _log.warning("Attempt %s of job %s could not be cleaned up.", number, job.pk, exc_info=True)
        coordination_accounts.clear(ref_of(job, attempt))
    if over:
        backend_factory.current().forget(str(job.pk))
    storage_usage.measure_checkpoints(job)


def site(job: Job) -> planner.Site:
    """Return what this installation adds to the job's plan.

    Of the datasets that belong to namespaces, the job has access only to the one it trains on.
    """
    return planner.Site(
        ingest_url=settings.INGEST_URL,
        data_path=data_roots(job),
        python=builders.current().python(),
        grace=timedelta(seconds=settings.STOP_GRACE_SECONDS),
        log_cap=settings.LOG_CAP_BYTES,
        checkpoint_seconds=settings.CHECKPOINT_SECONDS,
        outage=settings.OUTAGE_SECONDS,
        registration=settings.REGISTRATION_SECONDS,
    )


_STANDING: Mapping[type[Effect], Callable[[Job], Event | None]] = {
    state_machine.Reserve: _reserve,
    state_machine.Build: _build,
    state_machine.Launch: _launch,
    state_machine.Stop: _stop,
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
        for role, index, _ in planner.replicas(spec_of(attempt.job))
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
