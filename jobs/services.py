"""What people and agents do to jobs. People's deeds take ``actor``, check the scope, and leave a row in the trail.

The state of a job is changed by none of these: they leave facts (a wish, a report) and hint at the reconciler.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, BinaryIO, Protocol
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpRequest

from datasets import selectors as datasets
from datasets.selectors import Resolved
from datasets.storage import default_storage
from datasets.storage.base import Stat, StorageError
from jobs import builder, effects, elasticity, facts, keeping, planner, reconciler, snapshots, tasks
from jobs.backends import registry
from jobs.lifecycle import ACTIVE, HOLDS_QUOTA, TERMINAL, Interrupted, InvalidTransition, JobState, RetryRequested
from jobs.models import Artifact, Attempt, CodeSnapshot, Job, JobEvent, Replica, Scaling, Transition
from jobs.quantities import span
from jobs.rehearsal import Rehearsal, no_rehearsal, problems
from jobs.selectors import job_for
from jobs.spec import MOST_REPLICAS, JobSpec
from jobs.states import ENDED, ReplicaState
from jobs.streams.entries import Gap
from jobs.streams.models import Source
from portal.common.doorbell import ring
from portal.common.errors import Conflict, Forbidden, NotFound, QuotaExceeded, ValidationFailed
from portal.common.time import now as wall_clock
from quota import ledger
from quota import storage as storage_quota
from quota.models import Kind
from quota.selectors import Bounds, bounds_of
from rbac import audit
from rbac.access import hold_open, namespace_for
from rbac.models import Namespace, User
from rbac.scopes import Scope
from runtime import contract

_log = logging.getLogger(__name__)

KEY_LIMIT = 100  # characters of an idempotency key
_EVENTS = "events"  # the kind of source whose numbering ``record_events`` keeps
_FIRST_WHY = "Waiting to be admitted."


# --- People ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Submitted:
    """``created`` is False where an earlier submission with the same key is given again."""

    job: Job
    created: bool


def submit_job(
    *,
    actor: User,
    namespace: str,
    spec: JobSpec,
    idempotency_key: str | None = None,
    request: HttpRequest | None = None,
) -> Submitted:
    """Take a job in: QUEUED, with its code kept.

    Raises NotFound or Forbidden for the namespace, ValidationFailed for a data set that it may not use, QuotaExceeded
    (with ``numbers``) where it can never fit or the storage is full, Conflict where the key was used for something
    else.
    """
    room = namespace_for(actor, namespace, Scope.JOB_WRITE)
    key = _checked_key(idempotency_key)
    bounds = bounds_of(room)
    _refuse_what_never_fits(bounds, spec)
    code = snapshots.pack(spec.files)
    earlier = _earlier(actor, room, key, spec, code.digest)
    if earlier:
        return Submitted(earlier, created=False)
    data = _data_of(actor, room, spec)
    _take_room_for_code(room, bounds, code, spec.name)
    # The storage may be far away: no transaction is open meanwhile.
    snapshots.keep(code)
    try:
        return Submitted(_create(actor, room, spec, data, key, code, request), created=True)
    except IntegrityError:
        # The same key came twice at once.
        earlier = _earlier(actor, room, key, spec, code.digest)
        if earlier is None:
            raise
        return Submitted(earlier, created=False)


def _checked_key(key: str | None) -> str | None:
    if key is not None and (not key.strip() or len(key) > KEY_LIMIT or not key.isprintable()):
        raise ValidationFailed({"Idempotency-Key": [f"Write 1 to {KEY_LIMIT} printable characters."]})
    return key


def _refuse_what_never_fits(bounds: Bounds, spec: JobSpec) -> None:
    verdict = effects.can_ever_start(bounds, spec)
    if verdict.never:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


def _take_room_for_code(room: Namespace, bounds: Bounds, code: snapshots.Packed, name: str) -> None:
    """Raises QuotaExceeded where the storage is full, also for code that is kept already: a job leaves more."""
    thing = keeping.of_code(room, code.digest, name)
    if storage_quota.is_kept(thing):
        storage_quota.check(room, 0, bounds)
    else:
        storage_quota.take(room, thing, len(code.body))


def _earlier(actor: User, namespace: Namespace, key: str | None, spec: JobSpec, digest: str) -> Job | None:
    if key is None:
        return None
    job = Job.objects.filter(namespace=namespace, owner=actor, idempotency_key=key).first()
    if job and (job.snapshot_id != digest or not _is_same(job, spec)):
        raise Conflict(f"The key {key!r} was used for another job ({job.pk}). Use a fresh key for each job.")
    return job


def _is_same(job: Job, spec: JobSpec) -> bool:
    """Whether the job was submitted with that specification. It names its version also where it was asked for the
    newest one, which may be another by now."""
    pinned: str = job.spec["dataset"]
    same_data = spec.dataset in (pinned, pinned.partition("@")[0])
    return same_data and job.spec == replace(spec, dataset=pinned).to_json()


def _data_of(actor: User, namespace: Namespace, spec: JobSpec) -> Resolved | None:
    """The data set that the job is to train on, if it names one. Raises ValidationFailed."""
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
    code: snapshots.Packed,
    request: HttpRequest | None,
) -> Job:
    now = wall_clock()
    hold_open(namespace)
    _, fresh = CodeSnapshot.objects.get_or_create(digest=code.digest, defaults={"size": len(code.body)})
    if fresh:
        # An old one that nobody needed may have been removed since its file was looked for.
        transaction.on_commit(lambda: snapshots.keep(code))
    job = Job.objects.create(
        namespace=namespace,
        owner=actor,
        name=spec.name,
        dataset_version=data.version if data else None,
        # Pinned to the version: whoever tries the job again trains on the same.
        spec=(replace(spec, dataset=data.name) if data else spec).to_json(),
        snapshot_id=code.digest,
        why=_FIRST_WHY,
        created=now,
        changed=now,
        idempotency_key=key,
    )
    Transition.objects.create(job=job, attempt=job.attempt, at=now, state=job.state, why="Submitted.", actor=actor)
    detail = {"name": job.name, "snapshot": code.digest}
    audit.record("job.submit", str(job.pk), actor=actor, namespace=namespace, detail=detail, request=request)
    _tell(job)
    return job


def _tell(job: Job) -> None:
    """After the commit: the reconciler looks at the job, and so do readers."""
    tasks.hint(job.pk)
    ring(f"status:{job.pk}")
    ring(f"status:ns:{job.namespace.name}")


@dataclass(frozen=True)
class Preview:
    """What would come of a submission now. ``verdict``: ``admitted``, ``queued`` or ``refused``, with its reason."""

    verdict: str
    reason: str
    numbers: Mapping[str, Mapping[str, float]]
    amounts: Mapping[str, float]
    replicas: Sequence[Mapping[str, Any]]


def preview_job(*, actor: User, namespace: str, spec: JobSpec) -> Preview:
    """Admission and plan of a job that is not submitted. Nothing is changed or kept. Raises NotFound, Forbidden."""
    room = namespace_for(actor, namespace, Scope.JOB_WRITE)
    decided = effects.quota_verdict(room, spec)
    verdict = "admitted" if decided.admitted else "refused" if decided.never else "queued"
    return Preview(
        verdict=verdict,
        reason=decided.why or "It fits and would start at once.",
        numbers=decided.numbers,
        amounts=planner.amounts(spec),
        replicas=[
            {"name": f"{role}-{index}", "role": role, "index": index, "cpu": each.cpu, "memory": each.memory}
            for role, index, each in planner.replicas(spec)
        ],
    )


@transaction.atomic
def cancel_job(*, actor: User, job_id: UUID | str, request: HttpRequest | None = None) -> Job:
    """Leave the wish to cancel; asking twice is asking once.

    Raises NotFound, Forbidden, and Conflict where the job has ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state in TERMINAL:
        raise Conflict(f"The job has already ended ({job.state}); there is nothing to cancel.")
    now = wall_clock()
    wished = Job.objects.filter(pk=job.pk, cancel_requested=None).update(cancel_requested=now, cancelled_by=actor)
    if wished:
        audit.record("job.cancel", str(job.pk), actor=actor, namespace=job.namespace, request=request)
        _tell(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


@transaction.atomic
def retry_job(*, actor: User, job_id: UUID | str, request: HttpRequest | None = None) -> Job:
    """Let a job that has ended run again as its next attempt.

    Raises NotFound, Forbidden, QuotaExceeded, and Conflict where the job has not ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.state not in TERMINAL:
        raise Conflict(f"The job has not ended ({job.state}). Cancel it first, or wait for its end.")
    hold_open(job.namespace)
    if gone := effects.data_gone(job):
        raise Conflict(gone)
    _refuse_what_never_fits(bounds_of(job.namespace), effects.spec_of(job))
    Job.objects.filter(pk=job.pk).update(cancel_requested=None, cancelled_by=None, rehearsal=None)
    reconciler.cause(job.pk, RetryRequested, why=f"{actor.username} asked to run it again.", actor=actor)
    audit.record("job.retry", str(job.pk), actor=actor, namespace=job.namespace, request=request)
    _tell(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


SCALABLE = ACTIVE - {JobState.STOPPING}


@transaction.atomic
def scale_job(*, actor: User, job_id: UUID | str, wish: object, request: HttpRequest | None = None) -> Job:
    """Leave the wish for other numbers of replicas, as in ``{"trainer": 4}`` or ``{"pserver": 2}``.

    The quota is held for trainers at once, and they come and go while the job runs. Parameter servers are counted anew
    with the next attempt. ``{"elastic": true}`` leaves the number of trainers to the platform; a number that a person
    wishes for ends that.

    Raises NotFound, Forbidden, ValidationFailed, QuotaExceeded (with ``numbers``), and Conflict where the job ends.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    spec = effects.spec_of(job)
    wished = _checked_wish(wish, spec)
    if wished.keys() & {"trainer", "elastic"} and job.state not in SCALABLE:
        raise Conflict(f"Only a job that waits or runs can be scaled; this one is {job.state}.")
    if "pserver" in wished and job.state == JobState.SUCCEEDED:
        raise Conflict("The job has succeeded: there is nothing to go on with. Clone it to train anew.")
    _switch(job, spec, wished, actor, request)
    changed = {role: wished[role] for role in _SCALED if role in wished and wished[role] != _replicas(spec, role)}
    if not changed:
        return job_for(actor, job_id, Scope.JOB_WRITE)
    after = planner.scaled(spec, trainers=changed.get("trainer"), pservers=changed.get("pserver"))
    if "pserver" in changed:
        _refuse_what_never_fits(bounds_of(job.namespace), after)
    if "trainer" in changed:
        _hold_for(job, planner.scaled(effects.present_spec(job), trainers=changed["trainer"]))
    # Raising the revision makes a reconciler that has counted the trainers of before look again.
    fields = {f"{role}s": number for role, number in changed.items()}
    Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1, **fields)
    for role, number in changed.items():
        text = _SCALED[role](_replicas(spec, role), number, actor.username, job.state)
        _happened(job.pk, job.attempt, "", kind="scaled", text=text)
        if role == contract.TRAINER:
            scaled(job, _replicas(spec, role), number, automatic=False)
        detail = {"role": role, "before": _replicas(spec, role), "after": number}
        audit.record("job.scale", str(job.pk), actor=actor, namespace=job.namespace, detail=detail, request=request)
    _tell(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


def scaled(job: Job, before: int, after: int, *, automatic: bool, at: datetime | None = None) -> None:
    """Note that the job is to have another number of trainers."""
    Scaling.objects.create(
        job_id=job.pk, attempt=job.attempt, at=at or wall_clock(), before=before, after=after, automatic=automatic
    )


def _switch(job: Job, spec: JobSpec, wished: Mapping[str, Any], actor: User, request: HttpRequest | None) -> None:
    """Leave the number of trainers to the platform, or no longer; a number that a person wishes for stays."""
    on = wished.get("elastic", False if "trainer" in wished else None)
    if on is None or on == elasticity.is_elastic(job):
        return
    Job.objects.filter(pk=job.pk).update(elastic=on)
    least, most = spec.trainer.min, facts.count(spec.trainer.max, "trainer")
    text = f"{actor.username} leaves the number of trainers to the platform: {least} to {most}."
    if not on:
        text = f"{actor.username} sets the number of trainers: the platform leaves it alone from now on."
    _happened(job.pk, job.attempt, "", kind="elastic", text=text)
    audit.record(
        "job.elastic", str(job.pk), actor=actor, namespace=job.namespace, detail={"elastic": on}, request=request
    )
    _tell(job)


def _replicas(spec: JobSpec, role: str) -> int:
    return {contract.TRAINER: spec.trainer, contract.PSERVER: spec.pserver}[role].replicas


def _trainers_scaled(before: int, after: int, name: str, state: str) -> str:
    return f"Scaled from {before} to {facts.count(after, 'trainer')} by {name}."


def _pservers_scaled(before: int, after: int, name: str, state: str) -> str:
    told = f"Scaled from {before} to {facts.count(after, 'parameter server')} by {name}."
    return told if state == JobState.QUEUED else f"{told} This takes effect with the next attempt."


_SCALED: Mapping[str, Callable[[int, int, str, str], str]] = {
    contract.TRAINER: _trainers_scaled,
    contract.PSERVER: _pservers_scaled,
}
_SAY_HOW_MANY = 'Say how many replicas there shall be, as in {"trainer": 4} or {"pserver": 2}.'


def _checked_wish(wish: object, spec: JobSpec) -> Mapping[str, int]:
    """The numbers by role in the body of a call. Raises ValidationFailed."""
    if not isinstance(wish, Mapping) or not wish or set(wish) - {*_SCALED, "elastic"}:
        raise ValidationFailed({"trainer": [_SAY_HOW_MANY]})
    problems = {role: [problem] for role, number in wish.items() if (problem := _problem(role, number, spec))}
    if problems:
        raise ValidationFailed(problems)
    return wish


def _problem(role: str, number: object, spec: JobSpec) -> str:
    """What is wrong with a wished number; empty where it is right."""
    if role == "elastic":
        return _problem_of_switch(number, spec)
    if isinstance(number, bool) or not isinstance(number, int):
        return "Write a whole number."
    if role == contract.PSERVER and not spec.pserver.replicas:
        return "This job has no parameter servers. Clone it to give it some."
    if role == contract.PSERVER:
        return "" if 1 <= number <= MOST_REPLICAS else f"Write a number from 1 to {MOST_REPLICAS}."
    least, most = spec.trainer.min, spec.trainer.max
    if least <= number <= most:
        return ""
    bounds = f"{least} to {most}" if least < most else f"{least}"
    return f"The specification of this job allows {bounds} trainers (its min and max), not {number}."


def _problem_of_switch(on: object, spec: JobSpec) -> str:
    if not isinstance(on, bool):
        return "Write true or false."
    fixed = on and spec.trainer.min == spec.trainer.max
    return "Give roles.trainer a max above its min: between them the number of trainers may change." if fixed else ""


def _hold_for(job: Job, spec: JobSpec) -> None:
    """Have the quota hold what the job needs from now on. One that waits is only told what can never be."""
    if job.state == JobState.QUEUED:
        _refuse_what_never_fits(bounds_of(job.namespace), spec)
        return
    amounts = planner.amounts(spec)
    verdict = ledger.resize(namespace=job.namespace, job=job.pk, attempt=job.attempt, amounts=amounts)
    if not verdict.admitted:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


class Growth(Enum):
    """What became of another number of trainers that the platform chose."""

    DONE = "done"
    STALE = "stale"  # the job is not as it was when that was decided, or somebody else decides now
    REFUSED = "refused"  # the quota has no room for more


@transaction.atomic
def scale_automatically(
    *,
    job_id: UUID | str,
    attempt: int,
    before: int,
    after: int,
    why: str,
    leads: Callable[[], bool],
    now: datetime,
) -> Growth:
    """The platform's own wish for another number of trainers, for a job that is as it was when that was decided.

    ``leads`` is asked in the transaction of the write: whether whoever decided still may.
    """
    job = Job.objects.select_for_update().filter(pk=job_id, attempt=attempt, state=JobState.RUNNING).first()
    if job is None or not elasticity.is_elastic(job) or not leads():
        return Growth.STALE
    spec = effects.present_spec(job)
    if spec.trainer.replicas != before or not spec.trainer.min <= after <= spec.trainer.max:
        return Growth.STALE
    amounts = planner.amounts(planner.scaled(spec, trainers=after))
    if not ledger.resize(namespace=job.namespace, job=job.pk, attempt=attempt, amounts=amounts, now=now).admitted:
        return Growth.REFUSED
    Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1, trainers=after)
    scaled(job, before, after, automatic=True, at=now)
    _happened(job.pk, job.attempt, "", kind="scaled", text=why)
    _tell(job)
    return Growth.DONE


def advise(*, job_id: UUID | str, attempt: int, why: str) -> None:
    """Tell what the platform would do with a job's trainers if it did not only explain."""
    text = f"Only explained, nothing is changed: {why}"
    _happened(UUID(str(job_id)), attempt, "", kind="elastic", text=text)
    ring(f"status:{job_id}")


@transaction.atomic
def rehearse(*, actor: User, job_id: UUID | str, wish: object, request: HttpRequest | None = None) -> Job:
    """Leave the wish to rehearse failure, as in ``{"kill": "trainer", "every": "10s"}``; ``{"kill": null}`` ends it.

    Raises NotFound, Forbidden for all but the job's owner, ValidationFailed, and Conflict where the job has ended or
    the backend cannot do it.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    if job.owner_id != actor.pk:
        raise Forbidden("Only the owner of a job may rehearse its failure.")
    wished = _checked_rehearsal(job, wish, actor)
    if wished is None and job.rehearsal is None:
        return job
    Job.objects.filter(pk=job.pk).update(rehearsal=wished.to_json() if wished else None, revision=F("revision") + 1)
    text = f"{actor.username} ends the rehearsal."
    if wished:
        text = f"{actor.username} rehearses failure: every {facts.in_words(wished.every)} a {wished.kill} is killed."
    _happened(job.pk, job.attempt, "", kind="rehearsal", text=text)
    detail = {"kill": wished.kill, "every": wished.every.total_seconds()} if wished else {"kill": None}
    audit.record("job.rehearse", str(job.pk), actor=actor, namespace=job.namespace, detail=detail, request=request)
    _tell(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


def _checked_rehearsal(job: Job, wish: object, actor: User) -> Rehearsal | None:
    if not isinstance(wish, Mapping) or "kill" not in wish:
        raise ValidationFailed({"kill": ['Say what to rehearse, as in {"kill": "trainer", "every": "10s"}.']})
    if wish["kill"] is None:
        return None
    if errors := problems(wish):
        raise ValidationFailed(errors)
    if job.state not in SCALABLE:
        raise Conflict(f"Only a job that waits or runs can rehearse failure; this one is {job.state}.")
    if why := no_rehearsal(job.spec, registry.current().rehearses):
        raise Conflict(why)
    return Rehearsal(wish["kill"], span(wish["every"]), actor.username, wall_clock())


@transaction.atomic
def delete_job(*, actor: User, job_id: UUID | str, request: HttpRequest | None = None) -> None:
    """Delete a job that has ended, with its code, log, metrics, files and checkpoints. What it used stays counted.

    Raises NotFound, Forbidden, and Conflict where it has not ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    Job.objects.select_for_update().get(pk=job.pk)
    job.refresh_from_db(fields=["state", "snapshot"])
    if job.state not in TERMINAL:
        raise Conflict(f"The job has not ended ({job.state}). Cancel it first, or wait for its end.")
    keys = list(Artifact.objects.filter(job=job).values_list("key", flat=True))
    detail = {"name": job.name, "owner": job.owner.username, "created": job.created.isoformat()}
    audit.record("job.delete", str(job.pk), actor=actor, namespace=job.namespace, detail=detail, request=request)
    pk, room = job.pk, job.namespace
    keeping.forget(job)
    job.delete()
    transaction.on_commit(lambda: _remove_what_was_kept(pk, keys))
    ring(f"status:ns:{room.name}")


def _remove_what_was_kept(job_id: UUID, keys: Sequence[str]) -> None:
    """What cannot be removed now is found by the sweep."""
    storage = default_storage()
    for key in keys:
        try:
            storage.delete(key)
        except StorageError:
            _log.warning("%s could not be removed.", key, exc_info=True)
    registry.current().forget(str(job_id))


# --- Agents ----------------------------------------------------------------------------------------------------------
class ReplicaReport(Protocol):
    """What an agent tells of its replica; ``phase`` is starting, registered or exited."""

    @property
    def replica(self) -> str: ...
    @property
    def life(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def out_of_memory(self) -> bool: ...
    @property
    def why(self) -> str: ...


@transaction.atomic
def record_report(attempt: Attempt, report: ReplicaReport) -> None:
    """Write down how a replica fares; a report that was taken before, or is of an earlier life, changes nothing.

    Raises NotFound.
    """
    row = Replica.objects.select_for_update().filter(attempt=attempt, name=report.replica).first()
    if row is None:
        raise NotFound(f"This attempt has no replica {report.replica!r}.")
    if report.life < row.life:
        return
    told = _PHASES[report.phase](row, report, wall_clock())
    row.save()
    if told:
        _happened(attempt.job_id, attempt.number, row.name, kind=report.phase, text=told)
    _tell(attempt.job)


def _started(row: Replica, report: ReplicaReport, now: datetime) -> str:
    if row.state == ReplicaState.WAITING:
        row.state = ReplicaState.STARTING
    row.started = row.started or now
    return ""


def _registered(row: Replica, report: ReplicaReport, now: datetime) -> str:
    _started(row, report, now)
    if row.state not in ENDED:
        row.state = ReplicaState.REGISTERED
    before, row.registered = row.registered, row.registered or now
    return "" if before else facts.arrival(row.name, _losses(row), now)


def _losses(row: Replica) -> list[tuple[datetime, str]]:
    """When and how the replica ended (kinds of events) since it last registered."""
    happened = JobEvent.objects.filter(job_id=row.attempt.job_id, attempt=row.attempt.number, replica=row.name)
    told = list(happened.filter(kind__in=("registered", *facts.LOSSES)).order_by("id").values_list("at", "kind"))
    arrivals = [number for number, (_, kind) in enumerate(told, 1) if kind == "registered"]
    return told[max(arrivals, default=0) :]


def _exited(row: Replica, report: ReplicaReport, now: datetime) -> str:
    """The agent's own word replaces what the backend saw; it knows more."""
    if row.flushed:
        return ""
    row.state, row.flushed, row.finished = ReplicaState.EXITED, True, row.finished or now
    row.code, row.signal, row.out_of_memory, row.why = report.code, report.signal, report.out_of_memory, report.why
    return facts.ending(reconciler.replica_fact(row)) + "."


_PHASES = {"starting": _started, "registered": _registered, "exited": _exited}


def _happened(job_id: UUID, attempt: int, replica: str, *, kind: str, text: str) -> None:
    JobEvent.objects.create(job_id=job_id, attempt=attempt, at=wall_clock(), replica=replica, kind=kind, text=text)


def heartbeat(attempt: Attempt, *, replica: str) -> None:
    """Note that a replica's agent lives."""
    Replica.objects.filter(attempt=attempt, name=replica).update(heartbeat=wall_clock())


@transaction.atomic
def record_events(attempt: Attempt, *, replica: str, first: int, events: Sequence[tuple[float, str, str]]) -> int:
    """Take events (unix time, kind, text) that the replica numbers from ``first`` on; the last number taken.

    What was taken before is dropped. Raises Gap where ``first`` lies beyond the one after the last number taken.
    """
    source, _ = Source.objects.select_for_update().get_or_create(attempt=attempt, replica=replica, kind=_EVENTS)
    if first > source.last + 1:
        raise Gap(source.last)
    fresh = events[source.last + 1 - first :]
    JobEvent.objects.bulk_create(
        JobEvent(
            job_id=attempt.job_id,
            attempt=attempt.number,
            at=datetime.fromtimestamp(at, UTC),
            replica=replica,
            kind=kind,
            text=text,
        )
        for at, kind, text in fresh
    )
    source.last += len(fresh)
    source.save(update_fields=["last"])
    if fresh:
        ring(f"status:{attempt.job_id}")
    return source.last


def store_artifact(attempt: Attempt, *, replica: str, name: str, sha256: str, size: int, stream: BinaryIO) -> Artifact:
    """Keep a file of ``size`` bytes that a replica left; sending it again changes nothing.

    Where another replica has left a different file of that name, this one's goes by ``<replica>/<name>``.
    Raises QuotaExceeded before anything is read where the namespace's storage has no room for it, ValidationFailed
    where the content is not what ``sha256`` says, and what the storage raises.
    """
    known = Artifact.objects.filter(job_id=attempt.job_id, attempt=attempt.number)
    same = known.filter(sha256=sha256, name__in=(name, f"{replica}/{name}")).first()
    if same:
        return same
    job = Job.objects.select_related("namespace").get(pk=attempt.job_id)
    thing = keeping.of_job(job, Kind.ARTIFACTS)
    storage_quota.take(job.namespace, thing, size)
    key = f"{keeping.ARTIFACTS}/{attempt.job_id}/{attempt.number}/{uuid4().hex}"
    storage = default_storage()
    try:
        kept = storage.put(key, stream)
        if kept.sha256 != sha256:
            storage.delete(key)
            raise ValidationFailed({"sha256": ["The content has another hash; it was cut or changed on its way."]})
    except BaseException:
        storage_quota.add(thing, -size)
        raise
    taken = known.filter(name=name).exclude(replica=replica).exists()
    row, replaced = _write_artifact(attempt, f"{replica}/{name}" if taken else name, replica, kept)
    storage_quota.add(thing, kept.size - size - (replaced.size if replaced else 0))
    if replaced:
        storage.delete(replaced.key)
    ring(f"status:{attempt.job_id}")
    return row


@transaction.atomic
def _write_artifact(attempt: Attempt, name: str, replica: str, kept: Stat) -> tuple[Artifact, Stat | None]:
    """The row, and what it stood for before, where it stood for something else."""
    names: dict[str, Any] = {"job_id": attempt.job_id, "attempt": attempt.number, "name": name}
    before = Artifact.objects.select_for_update().filter(**names).first()
    fields = {"replica": replica, "size": kept.size, "sha256": kept.sha256, "key": kept.key, "created": wall_clock()}
    row, _ = Artifact.objects.update_or_create(**names, defaults=fields)
    return row, Stat(before.key, before.size, before.sha256) if before else None


# --- The end of the portal -------------------------------------------------------------------------------------------
def interrupt_all(*, seconds: float = 5.0) -> int:
    """Stop every running attempt because the portal itself stops; how many had not ended after ``seconds``.

    Each goes back to the queue as the next attempt. One that has not ended in time stays STOPPING, and the next start
    of the portal goes on with it. The caller has stopped the sweep and the worker before.
    """
    if registry.current().outlives_the_portal:
        builder.current().end_all()
        return 0
    deadline = time.monotonic() + seconds
    for job in Job.objects.filter(state=JobState.STOPPING):
        effects.hurry(job)
    running = Job.objects.filter(state__in=HOLDS_QUOTA).values_list("pk", flat=True)
    waiting = [pk for pk in running if _interrupt(pk)]
    builder.current().end_all()
    pause = threading.Event()
    while waiting and time.monotonic() < deadline:
        waiting = [pk for pk in waiting if not _at_rest(pk)]
        if waiting:
            pause.wait(0.05)
    return len(waiting)


def _interrupt(job_id: UUID) -> bool:
    try:
        reconciler.cause(job_id, Interrupted, why="The portal was stopped.")
    except InvalidTransition:
        # It went back to the queue by itself.
        return False
    return True


_REST = TERMINAL | {JobState.QUEUED}


def _at_rest(job_id: UUID) -> bool:
    try:
        state = reconciler.reconcile(job_id, rest=_REST)
    except Exception:  # noqa: BLE001  one job's trouble must not keep the others from being stopped
        _log.exception("Job %s could not be interrupted.", job_id)
        return True
    return state is None or state in _REST
