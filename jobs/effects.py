"""Does what the lifecycle asks for. Standing effects answer with the event that follows, or with None while there is
none yet; immediate effects are rows that change in the transaction of the state. Each may be done twice.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.utils.crypto import salted_hmac

from datasets import selectors as datasets
from datasets import shelf
from datasets.states import VersionState
from datasets.storage.base import StorageAway, StorageError
from jobs import builder, elasticity, facts, keeping, lifecycle, meeting, planner, tenants
from jobs.backends import registry
from jobs.backends.base import AttemptRef, LaunchFailed
from jobs.frameworks.table import is_coordinated
from jobs.lifecycle import Effect, Event, JobState
from jobs.models import Attempt, Job, Replica
from jobs.reasons import Reason
from jobs.spec import JobSpec
from jobs.streams import store
from jobs.streams.models import StreamHead
from portal.common.doorbell import ring
from portal.common.errors import NotFound, QuotaExceeded
from portal.common.time import now as wall_clock
from quota import ledger
from quota import selectors as quota
from quota.words import Verdict
from rbac.models import Namespace
from rbac.selectors import digest_of
from runtime import contract
from runtime.errors import TEMPORARY

_log = logging.getLogger(__name__)

# Of the grace that settings give a replica, how much is left when the whole portal is being stopped.
INTERRUPTION_GRACE = timedelta(seconds=2)
# How long after its beginning an attempt is prepared again where storage or machine fail for a moment.
PREPARING = timedelta(minutes=10)
# What an attempt may take beyond its time and the grace of its replicas until its last word is in.
_DRAIN_SECONDS = 15.0
WIRE_SECRET_BYTES = 32


def token_of(attempt: Attempt) -> str:
    """The token that the attempt's agents hold. It is derived, so that a second launch gives them the same one."""
    return "rga_" + salted_hmac("jobs.attempt-token", str(attempt.pk), algorithm="sha256").hexdigest()


def ref_of(job: Job, attempt: Attempt) -> AttemptRef:
    return AttemptRef(str(job.pk), str(attempt.pk), attempt.number, job.namespace.name)


def present_attempt(job: Job) -> Attempt | None:
    return Attempt.objects.filter(job=job, number=job.attempt).first()


def spec_of(job: Job) -> JobSpec:
    """The job's specification with the trainers that are wanted now, and the parameter servers of its next attempt."""
    return planner.scaled(JobSpec.from_json(job.spec), trainers=job.trainers, pservers=job.pservers)


def present_spec(job: Job) -> JobSpec:
    """The same with the parameter servers that the present attempt has, where there is one."""
    attempt, spec = present_attempt(job), spec_of(job)
    rows = attempt.replicas.filter(role=contract.PSERVER).count() if attempt else 0
    return planner.scaled(spec, pservers=rows or None)


# --- Standing --------------------------------------------------------------------------------------------------------
def perform(effect: Effect, job: Job) -> Event | None:
    """Do a standing effect of the job as it was loaded, and tell what came of it."""
    return _STANDING[type(effect)](job)


def quota_verdict(namespace: Namespace, spec: JobSpec) -> Verdict:
    """Whether the job would be admitted if it came now. Nothing is reserved."""
    asked = planner.amounts(_to_begin_with(spec, elastic=spec.elastic))
    return quota.preview(namespace, asked, length=_longest(spec), priority=spec.priority)


def can_ever_start(bounds: quota.Bounds, spec: JobSpec) -> Verdict:
    """Whether the job would be admitted if nothing else ran."""
    asked = planner.amounts(_to_begin_with(spec, elastic=spec.elastic))
    return quota.if_alone(bounds, asked, length=_longest(spec))


def refuse_what_never_fits(bounds: quota.Bounds, spec: JobSpec) -> None:
    """Raises QuotaExceeded (with ``numbers``) where the job could not start even if nothing else ran."""
    verdict = can_ever_start(bounds, spec)
    if verdict.never:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


def _to_begin_with(spec: JobSpec, *, elastic: bool) -> JobSpec:
    """An elastic job waits for the least that it can go on with, and no longer."""
    return elasticity.at_least(spec) if elastic else spec


def _longest(spec: JobSpec) -> float:
    """How long an attempt can hold its quota, in seconds: its time, and that of its stopping."""
    return spec.timeout.total_seconds() + settings.STOP_GRACE_SECONDS + _DRAIN_SECONDS


def _reserve(job: Job) -> Event:
    verdict = ledger.reserve(job.namespace, ask_of(job))
    if verdict.admitted:
        begin_with(job)
        return lifecycle.QuotaReserved(job.attempt)
    return lifecycle.QuotaRefused(job.attempt, waiting(verdict.why))


def ask_of(job: Job) -> ledger.Ask:
    """What the present attempt of a job that waits asks of the quota."""
    spec = spec_of(job)
    return ledger.Ask(
        job=job.pk,
        attempt=job.attempt,
        amounts=planner.amounts(_to_begin_with(spec, elastic=elasticity.is_elastic(job))),
        length=_longest(spec),
        priority=spec.priority,
        since=job.changed,
        label=job.name,
        owner=job.owner,
    )


def begin_with(job: Job) -> None:
    """Give an elastic job as many trainers as are wanted where nobody waits for what they take; else the least, and
    more as there is room. In the transaction of the admission."""
    if not elasticity.is_elastic(job):
        return
    spec = spec_of(job)
    wanted, least = spec.trainer.replicas, spec.trainer.min
    if wanted > least and not ledger.take_more(
        namespace=job.namespace, job=job.pk, attempt=job.attempt, amounts=planner.amounts(spec)
    ):
        Job.objects.filter(pk=job.pk).update(trainers=least)
        job.trainers = least


def waiting(why: str) -> str:
    """The sentence of a job that waits, from that of the quota's decision."""
    return f"Waiting for quota. {why}"


def _build(job: Job) -> Event | None:
    spec = JobSpec.from_json(job.spec)
    try:
        view = builder.of(spec).begin(job, spec)
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, f"The code could not be prepared: {error}")
    _ship_build_log(job, view.log)
    if view.problem:
        return lifecycle.BuildFailed(job.attempt, view.problem)
    try:
        if view.done is None or not _data_is_here(job):
            return None
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, f"The data set could not be laid out: {error}")
    return lifecycle.Built(job.attempt, f"Starting {_in_words(present_spec(job))}.")


def _unprepared(job: Job, error: Exception, why: str) -> Event | None:
    """None where it may succeed at the next sweep: a fault of the moment fails no job that was admitted lately."""
    passing = isinstance(error, StorageAway) or (isinstance(error, OSError) and error.errno in TEMPORARY)
    attempt = present_attempt(job)
    if not passing or attempt is None or wall_clock() >= attempt.created + PREPARING:
        return lifecycle.BuildFailed(job.attempt, why)
    _log.warning("Job %s cannot be prepared now; the sweep tries again. %s", job.pk, why)
    return None


def _data_is_here(job: Job) -> bool:
    """Whether the job's data set is laid out; if not, that is begun or goes on. Raises OSError, StorageError,
    NotFound."""
    if gone := data_gone(job, for_good=True):
        raise NotFound(gone)
    return job.dataset_version is None or shelf.prepare(job.dataset_version)


def data_gone(job: Job, *, for_good: bool = False) -> str:
    """Why the job cannot train on its data set any more; empty where it can. ``for_good``: deleted and its grace over,
    until which a job that was under way goes on."""
    named = str(job.spec.get("dataset", ""))
    version = job.dataset_version
    if version is None:
        return f"{named} has been deleted for good. Clone the job and choose another data set." if "@" in named else ""
    if for_good:
        return ""
    if version.dataset.deleted_at is not None:
        return f"The data set of {named} has been deleted. Restore it, or clone the job and choose another one."
    if version.state != VersionState.SEALED:
        return f"{named} has been deleted. Clone the job and choose another version."
    return ""


def _ship_build_log(job: Job, log: tuple[str, ...]) -> None:
    attempt = present_attempt(job)
    if log and attempt:
        at = time.time()
        lines = [(at, "system", line) for line in log]
        store.append_logs(job_id=job.pk, attempt=attempt, replica=builder.REPLICA, first=1, lines=lines)


def _in_words(spec: JobSpec) -> str:
    trainers, servers = facts.count(spec.trainer.replicas, "trainer"), spec.pserver.replicas
    if not servers:
        return trainers
    told = f"{facts.count(servers, 'parameter server')} and {trainers}"
    return f"the master, {told}" if is_coordinated(spec.framework, servers) else told


def _launch(job: Job) -> Event | None:
    attempt = present_attempt(job)
    if attempt is None:
        return None
    # Trainers that were wished for since have no row yet; staffing sees to it once the job runs.
    rows = attempt.replicas.filter(role=contract.TRAINER).count()
    spec = planner.scaled(present_spec(job), trainers=rows)
    made = builder.of(spec).made(job, spec)
    ref = ref_of(job, attempt)
    try:
        if not tenants.ready(job.namespace):
            return None
        here = replace(site(job), coordination=meeting.arrange(ref))
        secret = secrets.token_hex(WIRE_SECRET_BYTES)
        plan = planner.make_plan(ref, job.namespace.name, spec, made, here, token_of(attempt), secret)
        registry.current().launch(replace(plan, trusted=job.owner.is_admin))
    except LaunchFailed as failure:
        return lifecycle.LaunchFailed(job.attempt, failure.why, retryable=failure.retryable)
    except OSError as error:
        return lifecycle.LaunchFailed(job.attempt, f"The replicas could not be started: {error}.", retryable=True)
    return lifecycle.Launched(job.attempt)


def _stop(job: Job) -> None:
    _stop_within(job, grace_of(job))
    spec = JobSpec.from_json(job.spec)
    builder.of(spec).give_up(job, spec)


def grace_of(job: Job) -> timedelta:
    """How long replicas may take to end. Who gives back what was lent may write a checkpoint first."""
    usual = timedelta(seconds=settings.STOP_GRACE_SECONDS)
    if job.state != JobState.STOPPING:
        return usual  # one of them, which is not wanted any more
    if job.reason == Reason.PREEMPTED:
        return max(usual, timedelta(seconds=settings.PREEMPTION_GRACE_SECONDS))
    return min(usual, INTERRUPTION_GRACE) if job.reason == Reason.INTERRUPTED else usual


def hurry(job: Job) -> None:
    """The portal itself is being stopped: what stops for another reason gets no more grace than the rest."""
    _stop_within(job, min(timedelta(seconds=settings.STOP_GRACE_SECONDS), INTERRUPTION_GRACE))


def _stop_within(job: Job, grace: timedelta) -> None:
    attempt = present_attempt(job)
    if attempt is not None:
        registry.current().stop(ref_of(job, attempt), grace)


def tidy(job: Job, number: int, *, over: bool) -> None:
    """Have the backend and the coordination store forget an attempt that has ended; where the job is ``over``, also
    what was kept for another attempt. After the commit; what is left behind does no harm."""
    attempt = Attempt.objects.filter(job=job, number=number).first()
    if attempt is not None:
        try:
            registry.current().cleanup(ref_of(job, attempt))
        except OSError:
            _log.warning("Attempt %s of job %s could not be cleaned up.", number, job.pk, exc_info=True)
        meeting.clear(ref_of(job, attempt))
    if over:
        registry.current().forget(str(job.pk))
    keeping.measure_checkpoints(job)


def data_roots(job: Job) -> tuple[Path, ...]:
    """The directories of this machine that hold what the job may read, by name."""
    own = () if job.dataset_version_id is None else (shelf.root_of(job.dataset_version_id),)
    return (*own, *datasets.data_path())


def site(job: Job) -> planner.Site:
    """What this installation adds to the job's plan: of the data sets of namespaces it is shown its own alone."""
    return planner.Site(
        ingest_url=settings.INGEST_URL,
        data_path=data_roots(job),
        python=builder.current().python(),
        grace=timedelta(seconds=settings.STOP_GRACE_SECONDS),
        log_cap=settings.LOG_CAP_BYTES,
        checkpoint_seconds=settings.CHECKPOINT_SECONDS,
        outage=settings.OUTAGE_SECONDS,
        registration=settings.REGISTRATION_SECONDS,
    )


_STANDING: Mapping[type[Effect], Callable[[Job], Event | None]] = {
    lifecycle.Reserve: _reserve,
    lifecycle.Build: _build,
    lifecycle.Launch: _launch,
    lifecycle.Stop: _stop,
}


# --- Immediate -------------------------------------------------------------------------------------------------------
def commit(effect: Effect, job: Job) -> None:
    """Do an immediate effect, inside the transaction that changes the state."""
    _IMMEDIATE[type(effect)](job, effect.attempt)


def commit_together(due: Sequence[tuple[Effect, Job]]) -> None:
    """Do the immediate effects of many jobs that ``step`` asked for: attempts in two statements, readers of a namespace
    once."""
    opened = [(job, effect.attempt) for effect, job in due if isinstance(effect, lifecycle.OpenAttempt)]
    published = [job for effect, job in due if isinstance(effect, lifecycle.Publish)]
    _open_attempts(opened)
    publish_together([(job.pk, job.namespace.name) for job in published])
    for effect, job in due:
        if not isinstance(effect, (lifecycle.OpenAttempt, lifecycle.Publish)):
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
    """Readers are told to look. The doorbell itself waits for the commit."""
    publish_together([(job.pk, job.namespace.name)])


def publish_together(changed: Sequence[tuple[UUID, str]]) -> None:
    """The same for many jobs with the names of their namespaces, each reader once."""
    for topic in dict.fromkeys(f"status:ns:{namespace}" for _, namespace in changed):
        ring(topic)
    for job, _ in changed:
        ring(f"status:{job}")


_IMMEDIATE: Mapping[type[Effect], Callable[[Job, int], None]] = {
    lifecycle.OpenAttempt: _open_attempt,
    lifecycle.CloseAttempt: _close_attempt,
    lifecycle.ReleaseQuota: _release_quota,
    lifecycle.OpenStreams: _open_streams,
    lifecycle.CloseStreams: _close_streams,
    lifecycle.Publish: _publish,
}

# States in which the backend has something to tell.
OBSERVED = frozenset({JobState.REGISTERING, JobState.RUNNING, JobState.STOPPING})
