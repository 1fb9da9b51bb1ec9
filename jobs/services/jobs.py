"""Actions of users on jobs. Every action takes ``actor``, checks the scope, and adds a row to the audit log.

None of them changes the state of a job: they store the request and send the reconciler a hint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F

from datasets import selectors as datasets
from datasets.selectors import Resolved
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from jobs import storage_usage
from jobs.backends import factory as backend_factory
from jobs.backends.local import isolation
from jobs.builds import builders, code_snapshots
from jobs.launch import roles
from jobs.lifecycle import wording
from jobs.lifecycle.fault_injection import Rehearsal, no_rehearsal, problems
from jobs.lifecycle.state_machine import TERMINAL, RetryRequested
from jobs.lifecycle.states import CHANGEABLE
from jobs.messages import jobs as messages
from jobs.models import Artifact, CodeSnapshot, Job, Transition
from jobs.reconcile import reconciler
from jobs.selectors import admission as quota_questions
from jobs.selectors import attempts
from jobs.selectors.jobs import job_for
from jobs.services.notifications import happened, notify
from jobs.spec.model import JobSpec
from jobs.spec.quantities import span
from jobs.terminals import recordings
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.common.rows import ensure
from portal.common.tracing import request_spans
from quota import storage as storage_quota
from quota.selectors import Bounds, bounds_of
from rbac.access import hold_open, namespace_for
from rbac.audit import log as audit_log
from rbac.models import Namespace, User
from rbac.scopes import Scope

_log = logging.getLogger(__name__)

KEY_LIMIT = 100  # characters of an idempotency key
_FIRST_WHY = messages.WAITING_FOR_ADMISSION()


@dataclass(frozen=True)
class Submitted:
    """Result of a submission. ``created`` is False if the job is that of an earlier submission with the same key."""

    job: Job
    created: bool


def submit_job(
    *,
    actor: User,
    namespace: str,
    spec: JobSpec,
    idempotency_key: str | None = None,
    when_full: bool = False,
) -> Submitted:
    """Create a job in the state QUEUED and store its code. ``when_full``: also while the namespace's storage is full.

    Raises NotFound or Forbidden for the namespace, ValidationFailed for a dataset or image that it may not use,
    QuotaExceeded (with ``numbers``) if the job can never fit or the storage is full, Conflict if the key was used for
    another job.
    """
    target = namespace_for(actor, namespace, Scope.JOB_WRITE)
    key = checked_key(idempotency_key)
    if why := isolation.refusal(actor):
        raise Forbidden(why)
    bounds = bounds_of(target)
    _refuse_image(target, spec)
    quota_questions.require_admissible(bounds, spec)
    code = code_snapshots.pack(spec.files)
    earlier = _earlier(actor, target, key, spec, code.digest)
    if earlier:
        return Submitted(earlier, created=False)
    data = _data_of(actor, target, spec)
    if when_full:
        _count_code(target, code, spec.name)
    else:
        _take_storage_for_code(target, bounds, code, spec.name)
    try:
        # The storage may be remote: it is written outside of any transaction.
        code_snapshots.keep(code)
        return Submitted(_create(actor, target, spec, data, key, code), created=True)
    except Exception as error:
        # Two concurrent submissions had the same key.
        earlier = _earlier(actor, target, key, spec, code.digest) if isinstance(error, IntegrityError) else None
        if earlier is None:
            storage_usage.forget_unused_code(target, code.digest)
            raise
        return Submitted(earlier, created=False)


def checked_key(key: str | None) -> str | None:
    if key is not None and (not key.strip() or len(key) > KEY_LIMIT or not key.isprintable()):
        raise ValidationFailed({"Idempotency-Key": [messages.KEY_INVALID(most=KEY_LIMIT)]})
    return key


def _take_storage_for_code(namespace: Namespace, bounds: Bounds, code: code_snapshots.Packed, name: str) -> None:
    """Reserve storage for the code of a submission.

    Raises QuotaExceeded if the storage is full, even if the code is stored already: the job will store more than code.
    """
    stored = storage_usage.of_code(namespace, code.digest, name)
    if storage_quota.is_kept(stored):
        storage_quota.check(namespace, 0, bounds)
    else:
        storage_quota.take(namespace, stored, len(code.body))


def _count_code(namespace: Namespace, code: code_snapshots.Packed, name: str) -> None:
    """Count the code of a submission in the storage without a limit."""
    stored = storage_usage.of_code(namespace, code.digest, name)
    if not storage_quota.is_kept(stored):
        storage_quota.add(stored, len(code.body))


def _earlier(actor: User, namespace: Namespace, key: str | None, spec: JobSpec, digest: str) -> Job | None:
    if key is None:
        return None
    job = Job.objects.filter(namespace=namespace, owner=actor, idempotency_key=key).first()
    if job and (job.snapshot_id != digest or not _is_same(job, spec)):
        raise Conflict(messages.IDEMPOTENCY_KEY_REUSED(key=f"{key!r}", job=job.pk))
    return job


def _is_same(job: Job, spec: JobSpec) -> bool:
    """Return whether the job was submitted with this specification.

    The stored specification pins the version of the dataset, even if the submission named no version. The newest
    version may have changed since.
    """
    pinned: str = job.spec["dataset"]
    same_data = spec.dataset in (pinned, pinned.partition("@")[0])
    # Compared as parsed now: the stored specification may lack fields that were added later.
    return same_data and JobSpec.from_json(job.spec).to_json() == replace(spec, dataset=pinned).to_json()


def _data_of(actor: User, namespace: Namespace, spec: JobSpec) -> Resolved | None:
    """Return the dataset that the specification names, if any. Raises ValidationFailed."""
    if not spec.dataset:
        return None
    try:
        return datasets.resolve(actor, namespace.name, spec.dataset)
    except NotFound as missing:
        raise ValidationFailed({"dataset": [missing.detail]}) from None


@transaction.atomic
def _create(
    actor: User,
    namespace: Namespace,
    spec: JobSpec,
    data: Resolved | None,
    key: str | None,
    code: code_snapshots.Packed,
) -> Job:
    now = wall_clock()
    hold_open(namespace)
    if not CodeSnapshot.objects.filter(pk=code.digest).exists():
        ensure(CodeSnapshot, digest=code.digest, size=len(code.body), created=now)
        # Garbage collection may have removed an old, unused snapshot since its file was stored.
        transaction.on_commit(lambda: code_snapshots.keep(code))
    job = Job.objects.create(
        namespace=namespace,
        owner=actor,
        name=spec.name,
        dataset_version=data.version if data else None,
        # Pinned to the version: a retry trains on the same data.
        spec=(replace(spec, dataset=data.name) if data else spec).to_json(),
        snapshot_id=code.digest,
        why=_FIRST_WHY,
        created=now,
        changed=now,
        idempotency_key=key,
        traceparent=request_spans.of_submission(),
    )
    Transition.objects.create(job=job, attempt=job.attempt, at=now, state=job.state, why="Submitted.", actor=actor)
    detail = {"name": job.name, "snapshot": code.digest}
    audit_log.record("job.submit", str(job.pk), actor=actor, namespace=namespace, detail=detail)
    notify(job)
    return job


@dataclass(frozen=True)
class Preview:
    """Expected result of a submission now. ``verdict`` is ``admitted``, ``queued`` or ``refused``, with its reason."""

    verdict: str
    reason: str
    numbers: Mapping[str, Mapping[str, float]]
    amounts: Mapping[str, float]
    replicas: Sequence[Mapping[str, Any]]


def preview_job(*, actor: User, namespace: str, spec: JobSpec) -> Preview:
    """Return the admission and the plan of a job without submitting it. Changes and stores nothing.

    Raises NotFound, Forbidden, ValidationFailed.
    """
    target = namespace_for(actor, namespace, Scope.JOB_WRITE)
    _refuse_image(target, spec)
    decided = quota_questions.quota_verdict(target, spec)
    verdict = "admitted" if decided.admitted else "refused" if decided.never else "queued"
    reason = decided.why or messages.JOB_FITS()
    if why := isolation.refusal(actor):
        verdict, reason = "refused", why
    return Preview(
        verdict=verdict,
        reason=reason,
        numbers=decided.numbers,
        amounts=roles.amounts(spec),
        replicas=[
            {"name": f"{role}-{index}", "role": role, "index": index, "cpu": each.cpu, "memory": each.memory}
            for role, index, each in roles.each_replica(spec)
        ],
    )


def _refuse_image(namespace: Namespace, spec: JobSpec) -> None:
    if problem := builders.image_problem(namespace.name, spec):
        raise ValidationFailed({"image": [problem]})


@transaction.atomic
def cancel_job(*, actor: User, job_id: UUID | str) -> Job:
    """Request the cancellation of a job. Idempotent.

    Raises NotFound, Forbidden, and Conflict if the job has ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state in TERMINAL:
        raise Conflict(messages.JOB_ALREADY_ENDED(state=job.state))
    now = wall_clock()
    requested = Job.objects.filter(pk=job.pk, cancel_requested=None).update(cancel_requested=now, cancelled_by=actor)
    if requested:
        audit_log.record("job.cancel", str(job.pk), actor=actor, namespace=job.namespace)
        notify(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


@transaction.atomic
def retry_job(*, actor: User, job_id: UUID | str) -> Job:
    """Run a job that has ended again, as its next attempt.

    Raises NotFound, Forbidden, QuotaExceeded, and Conflict if the job has not ended or its dataset is gone.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state not in TERMINAL:
        raise Conflict(messages.JOB_NOT_ENDED(state=job.state))
    hold_open(job.namespace)
    if gone := attempts.data_gone(job):
        raise Conflict(gone)
    quota_questions.require_admissible(bounds_of(job.namespace), attempts.spec_of(job))
    traceparent = request_spans.of_submission()
    fresh = {"cancel_requested": None, "cancelled_by": None, "rehearsal": None, "traceparent": traceparent}
    Job.objects.filter(pk=job.pk).update(**fresh)
    reconciler.cause(job.pk, RetryRequested, why=messages.RETRY_REQUESTED(name=actor.username), actor=actor)
    audit_log.record("job.retry", str(job.pk), actor=actor, namespace=job.namespace)
    notify(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


@transaction.atomic
def rehearse(*, actor: User, job_id: UUID | str, rehearsal: object) -> Job:
    """Request a rehearsal of failure, such as ``{"kill": "trainer", "every": "10s"}``; ``{"kill": null}`` ends it.

    Raises NotFound, Forbidden for all but the job's owner, ValidationFailed, and Conflict if the job has ended or
    the backend does not support it.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.owner_id != actor.pk:
        raise Forbidden(messages.REHEARSAL_OWNER_ONLY())
    checked = _checked_rehearsal(job, rehearsal, actor)
    if checked is None and job.rehearsal is None:
        return job
    Job.objects.filter(pk=job.pk).update(rehearsal=checked.to_json() if checked else None, revision=F("revision") + 1)
    text = messages.REHEARSAL_ENDED(name=actor.username)
    if checked:
        text = messages.REHEARSAL_STARTED(
            name=actor.username, length=wording.in_words(checked.every), role=checked.kill
        )
    happened(job.pk, job.attempt, "", kind="rehearsal", text=text)
    detail = {"kill": checked.kill, "every": checked.every.total_seconds()} if checked else {"kill": None}
    audit_log.record("job.rehearse", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
    notify(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


def _checked_rehearsal(job: Job, rehearsal: object, actor: User) -> Rehearsal | None:
    if not isinstance(rehearsal, Mapping) or "kill" not in rehearsal:
        raise ValidationFailed({"kill": [messages.REHEARSAL_MISSING()]})
    if rehearsal["kill"] is None:
        return None
    if errors := problems(rehearsal):
        raise ValidationFailed(errors)
    if job.state not in CHANGEABLE:
        raise Conflict(messages.REHEARSAL_WRONG_STATE(state=job.state))
    if why := no_rehearsal(job.spec, backend_factory.current().rehearses):
        raise Conflict(why)
    return Rehearsal(rehearsal["kill"], span(rehearsal["every"]), actor.username, wall_clock())


@transaction.atomic
def delete_job(*, actor: User, job_id: UUID | str) -> None:
    """Delete a job that has ended, with its code, log, metrics, files and checkpoints. Its past usage stays counted.

    Raises NotFound, Forbidden, and Conflict if the job has not ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    Job.objects.select_for_update().get(pk=job.pk)
    job.refresh_from_db(fields=["state", "snapshot"])
    if job.state not in TERMINAL:
        raise Conflict(messages.JOB_NOT_ENDED(state=job.state))
    keys = [*Artifact.objects.filter(job=job).values_list("key", flat=True), *recordings.keys_of(job)]
    detail = {"name": job.name, "owner": job.owner.username, "created": job.created.isoformat()}
    audit_log.record("job.delete", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
    pk, namespace = job.pk, job.namespace
    storage_usage.forget(job)
    job.delete()
    # Robust: the job is deleted already, and a repeated call would not find it.
    transaction.on_commit(lambda: _remove_what_was_kept(pk, keys), robust=True)
    ring(f"status:{pk}")
    ring(f"status:ns:{namespace.name}")


def _remove_what_was_kept(job_id: UUID, keys: Sequence[str]) -> None:
    """Remove the files of a deleted job. The sweep removes what this fails to."""
    storage = default_storage()
    for key in keys:
        try:
            storage.delete(key)
        except StorageError:
            _log.warning("%s could not be removed.", key, exc_info=True)
    backend_factory.current().forget(str(job_id))
