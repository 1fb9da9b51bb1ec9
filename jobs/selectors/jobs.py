"""Queries of jobs. Every list starts from ``rbac.access.restrict``: jobs of other namespaces are not found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO
from uuid import UUID

from django.db.models import F, Prefetch, QuerySet

from datasets.storage import default_storage
from jobs.backends import factory as backend_factory
from jobs.builds import code_snapshots
from jobs.lifecycle import fault_injection
from jobs.lifecycle.holds import Held
from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.states import ACTIVE, JobState, ReplicaState
from jobs.messages import jobs as messages
from jobs.models import Artifact, Attempt, Job, Replica
from jobs.selectors.elastic_jobs import is_elastic, sizing_of
from portal.common.errors import Forbidden, NotFound, ValidationFailed
from rbac.access import Actor, may, restrict
from rbac.models import Namespace
from rbac.scopes import Scope
from runtime import contract

JobId = UUID | str
# The attribute under which a job carries its present attempt.
_PRESENT = "present_attempts"
_NOT_THERE = messages.JOB_NOT_VISIBLE()
# Values of ``?state=`` beside the states themselves.
_GROUPS: Mapping[str, frozenset[JobState]] = {"ACTIVE": ACTIVE, "ENDED": frozenset(JobState) - ACTIVE}


def versions_in_use() -> set[int]:
    """Return the dataset versions of all jobs that have not ended."""
    going = Job.objects.filter(state__in=ACTIVE, dataset_version__isnull=False)
    return set(going.values_list("dataset_version", flat=True))


# --- Jobs ------------------------------------------------------------------------------------------------------------
def jobs_for(actor: Actor) -> QuerySet[Job]:
    """Return the jobs that the actor may read, with all that is rendered: three queries for any number of jobs."""
    return _whole(restrict(Job.objects.all(), actor, Scope.JOB_READ))


def _whole(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Add the owner, the namespace, and the replicas of the present attempt."""
    present = Attempt.objects.filter(number=F("job__attempt")).prefetch_related("replicas")
    attempts = Prefetch("attempts", queryset=present, to_attr=_PRESENT)
    return jobs.select_related("namespace", "owner").prefetch_related(attempts)


def jobs_in(actor: Actor, namespace: Namespace, query: Mapping[str, str]) -> QuerySet[Job]:
    """Return the jobs of a namespace, filtered by the query.

    ``state``: one or more, separated by commas; ACTIVE and ENDED are groups. ``owner``: a user's name. ``q``: part of
    the job's name. Raises ValidationFailed for an unknown state.
    """
    jobs = jobs_for(actor).filter(namespace=namespace)
    if names := query.get("state"):
        jobs = jobs.filter(state__in=_states(names))
    if owner := query.get("owner"):
        jobs = jobs.filter(owner__username=owner)
    if part := query.get("q"):
        jobs = jobs.filter(name__icontains=part)
    return jobs


def _states(names: str) -> set[str]:
    found: set[str] = set()
    for word in names.upper().split(","):
        if word in _GROUPS:
            found.update(_GROUPS[word])
        elif word in JobState.__members__:
            found.add(word)
        else:
            known = ", ".join([*JobState, *_GROUPS])
            raise ValidationFailed({"state": [messages.JOB_STATE_UNKNOWN(state=f"{word[:40]!r}", names=known)]})
    return found


def job_for(actor: Actor, job_id: JobId, scope: Scope) -> Job:
    """Return the job if the actor has ``scope`` for it.

    Raises NotFound if it does not exist or the actor may not read it, Forbidden if the actor's role lacks the scope.
    """
    try:
        job = jobs_for(actor).filter(pk=UUID(str(job_id))).first()
    except ValueError:
        job = None
    if job is None:
        raise NotFound(_NOT_THERE)
    if not may(actor, scope, job.namespace):
        raise Forbidden(messages.ROLE_INSUFFICIENT(namespace=f"{job.namespace.name!r}", scope=scope))
    return job


# --- Documents -------------------------------------------------------------------------------------------------------
def job_json(job: Job) -> dict[str, Any]:
    """Return a job as the API renders it. ``job`` must come from this module's queries."""
    return {
        "id": str(job.pk),
        "name": job.name,
        "namespace": job.namespace.name,
        "owner": job.owner.username,
        "state": job.state,
        "reason": job.reason,
        "why": job.why,
        "attempt": job.attempt,
        "created": _when(job.created),
        "started": _when(job.started),
        "finished": _when(job.finished),
        "cancel_requested": _when(job.cancel_requested),
        "trainers": job.trainers,
        "pservers": job.pservers,
        "elastic": is_elastic(job),
        "rehearsal": job.rehearsal,
        "pause": _pause_json(job),
        "replicas": _replicas_json(_present_replicas(job)),
        "spec": job.spec,
    }


def job_detail(job: Job) -> dict[str, Any]:
    """Return ``job_json`` with the fields of a single job: why an elastic one has its number of trainers."""
    return {**job_json(job), "sizing": sizing_of(job)}


def submitted_json(job: Job) -> dict[str, Any]:
    """Return ``job_detail`` of a job that was just submitted, without queries: it has no attempt yet."""
    setattr(job, _PRESENT, [])
    return {**job_json(job), "sizing": ""}


def _pause_json(job: Job) -> dict[str, Any] | None:
    present: list[Attempt] = getattr(job, _PRESENT)
    pause = Pause.from_json(present[0].pause) if present else None
    if pause is None or not pause.on:
        return None
    return {"done": pause.done, "since": _when(datetime.fromtimestamp(pause.since, UTC)), "by": pause.by}


def _present_replicas(job: Job) -> list[Any]:
    present: list[Attempt] = getattr(job, _PRESENT)
    replicas = [replica for attempt in present for replica in attempt.replicas.all()]
    return sorted(replicas, key=lambda replica: replica.pk)


def _replicas_json(replicas: Sequence[Any]) -> list[dict[str, Any]]:
    """Render the replicas. Of several registered masters, the one with the lowest incarnation serves.

    Their reports can arrive in another order; that order decides only for agents that report no incarnation.
    """
    masters = [one for one in replicas if one.role == contract.MASTER and one.state == ReplicaState.REGISTERED]
    first, *others = sorted(masters, key=_serving_order) or [None]
    standby = {one.pk: messages.ON_STANDBY(replica=first.name) for one in others if first}
    return [_replica_json(replica, standby.get(replica.pk, replica.why)) for replica in replicas]


def _serving_order(master: Replica) -> tuple[bool, int, datetime | None]:
    return master.incarnation is None, master.incarnation or 0, master.registered


def _replica_json(replica: Any, why: str) -> dict[str, Any]:
    return {
        "name": replica.name,
        "role": replica.role,
        "index": replica.index,
        "start_number": replica.start_number,
        "state": replica.state,
        "why": why,
        "held": _held_json(replica.held),
        "code": replica.code,
        "signal": replica.signal,
        "started": _when(replica.started),
        "finished": _when(replica.finished),
    }


def _held_json(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    held = Held.from_json(body)
    return {"exception": held.exception, "until": _when(held.until)} if held else None


def _when(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def job_state(job_id: JobId) -> str:
    """Return the state alone; empty if the job does not exist."""
    return Job.objects.filter(pk=job_id).values_list("state", flat=True).first() or ""


def job_document(job_id: JobId) -> dict[str, Any] | None:
    """Return ``job_detail`` of one job without authorisation: the caller has done it. None if it does not exist."""
    job = _whole(Job.objects.filter(pk=job_id)).first()
    return job_detail(job) if job else None


def namespace_documents(namespace: str, limit: int) -> list[dict[str, Any]]:
    """Return ``job_json`` of the newest jobs of a namespace without authorisation: the caller has done it."""
    newest = Job.objects.filter(namespace__name=namespace).order_by("-created", "-id")
    return [job_json(job) for job in _whole(newest)[:limit]]


def rehearsal_offer(actor: Actor, job: Job) -> dict[str, Any] | None:
    """Return the fault injection that the actor may start: the ``roles`` and ``most`` kills, or ``why`` there is none.

    None unless the actor owns the job.
    """
    if job.owner_id != actor.pk or not may(actor, Scope.JOB_WRITE, job.namespace):
        return None
    why = fault_injection.no_rehearsal(job.spec, backend_factory.current().rehearses)
    return {"roles": [] if why else list(contract.ROLES), "most": fault_injection.MOST_KILLS, "why": why}


# --- Artifacts and files ---------------------------------------------------------------------------------------------
def artifacts(job: Job) -> QuerySet[Artifact]:
    """Return the artifacts of the last attempt that has any, by name."""
    last = Artifact.objects.filter(job=job).order_by("-attempt").values("attempt")[:1]
    return Artifact.objects.filter(job=job, attempt__in=last).order_by("name")


def artifact(job: Job, name: str) -> tuple[Artifact, BinaryIO]:
    """Return one artifact and a reader of its content. Raises NotFound."""
    found = artifacts(job).filter(name=name).first()
    if found is None:
        raise NotFound(messages.ARTIFACT_NOT_FOUND(name=f"{name[:200]!r}"))
    return found, default_storage().open(found.key)


def files(job: Job) -> dict[str, str]:
    """Return the submitted code: path to text."""
    return code_snapshots.files_of(job.snapshot)


def document(job: Job) -> dict[str, Any]:
    """Return the specification with its files, in a form that can be submitted again."""
    return {**job.spec, "files": files(job)}
