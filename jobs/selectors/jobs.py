"""Reading jobs. Every list starts from ``rbac.access.restrict``; what belongs to somebody else is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO
from uuid import UUID

from django.db.models import F, Prefetch, QuerySet

from datasets.storage import default_storage
from jobs.backends import factory as backend_factory
from jobs.builds import code_snapshots
from jobs.lifecycle import fault_injection
from jobs.lifecycle.states import ACTIVE, JobState, ReplicaState
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
_NOT_THERE = "There is no such job that you may see."
# What ``?state=`` may say beside the states themselves.
_GROUPS: Mapping[str, frozenset[JobState]] = {"ACTIVE": ACTIVE, "ENDED": frozenset(JobState) - ACTIVE}


def versions_in_use() -> set[int]:
    """The versions of datasets that a job which has not ended trains on."""
    going = Job.objects.filter(state__in=ACTIVE, dataset_version__isnull=False)
    return set(going.values_list("dataset_version", flat=True))


# --- Jobs ------------------------------------------------------------------------------------------------------------
def jobs_for(actor: Actor) -> QuerySet[Job]:
    """The jobs that the actor may see, ready to be rendered: three queries, however many they are."""
    return _whole(restrict(Job.objects.all(), actor, Scope.JOB_READ))


def _whole(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """With the owner, the namespace, and the replicas of the present attempt."""
    present = Attempt.objects.filter(number=F("job__attempt")).prefetch_related("replicas")
    attempts = Prefetch("attempts", queryset=present, to_attr=_PRESENT)
    return jobs.select_related("namespace", "owner").prefetch_related(attempts)


def jobs_in(actor: Actor, namespace: Namespace, query: Mapping[str, str]) -> QuerySet[Job]:
    """The jobs of a namespace, filtered by ``state`` (several with commas; ACTIVE and ENDED are groups), ``owner`` (a
    user's name) and ``q`` (a part of the name). Raises ValidationFailed for an unknown state."""
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
            raise ValidationFailed({"state": [f"There is no state {word[:40]!r}. Known are {known}."]})
    return found


def job_for(actor: Actor, job_id: JobId, scope: Scope) -> Job:
    """The job, if the actor may do ``scope`` with it.

    Raises NotFound where it is not there or belongs to others, Forbidden where the actor's role is too small.
    """
    try:
        job = jobs_for(actor).filter(pk=UUID(str(job_id))).first()
    except ValueError:
        job = None
    if job is None:
        raise NotFound(_NOT_THERE)
    if not may(actor, scope, job.namespace):
        raise Forbidden(f"Your role in {job.namespace.name!r} does not allow this ({scope}). Ask one of its owners.")
    return job


# --- Documents -------------------------------------------------------------------------------------------------------
def job_json(job: Job) -> dict[str, Any]:
    """A job as the API shows it. ``job`` comes from this module's queries."""
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
        "replicas": _replicas_json(_present_replicas(job)),
        "spec": job.spec,
    }


def job_detail(job: Job) -> dict[str, Any]:
    """``job_json`` with what is told of a job alone: why an elastic one has its number of trainers."""
    return {**job_json(job), "sizing": sizing_of(job)}


def submitted_json(job: Job) -> dict[str, Any]:
    """``job_detail`` of a job that has just been submitted, and so has no attempt yet: without asking the database."""
    setattr(job, _PRESENT, [])
    return {**job_json(job), "sizing": ""}


def _present_replicas(job: Job) -> list[Any]:
    present: list[Attempt] = getattr(job, _PRESENT)
    replicas = [replica for attempt in present for replica in attempt.replicas.all()]
    return sorted(replicas, key=lambda replica: replica.pk)


def _replicas_json(replicas: Sequence[Any]) -> list[dict[str, Any]]:
    """Of several masters that have registered, the one with the lowest incarnation serves.

    The order in which their reports arrived may be another; it decides only for agents that report no incarnation.
    """
    masters = [one for one in replicas if one.role == contract.MASTER and one.state == ReplicaState.REGISTERED]
    first, *others = sorted(masters, key=_serving_order) or [None]
    standby = {one.pk: f"Stands by, and takes over if {first.name} is lost." for one in others if first}
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
        "code": replica.code,
        "signal": replica.signal,
        "started": _when(replica.started),
        "finished": _when(replica.finished),
    }


def _when(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def job_state(job_id: JobId) -> str:
    """The state alone. Empty where the job is gone."""
    return Job.objects.filter(pk=job_id).values_list("state", flat=True).first() or ""


def job_document(job_id: JobId) -> dict[str, Any] | None:
    """``job_detail`` of one job, for a reader who was authorised before. None where it is gone."""
    job = _whole(Job.objects.filter(pk=job_id)).first()
    return job_detail(job) if job else None


def namespace_documents(namespace: str, limit: int) -> list[dict[str, Any]]:
    """``job_json`` of the newest jobs of a namespace, for a reader who was authorised before."""
    newest = Job.objects.filter(namespace__name=namespace).order_by("-created", "-id")
    return [job_json(job) for job in _whole(newest)[:limit]]


def rehearsal_offer(actor: Actor, job: Job) -> dict[str, Any] | None:
    """What the actor may rehearse with the job: the ``roles`` to choose from and the ``most`` kills, or ``why`` there
    is nothing to choose. None for those whose job it is not."""
    if job.owner_id != actor.pk or not may(actor, Scope.JOB_WRITE, job.namespace):
        return None
    why = fault_injection.no_rehearsal(job.spec, backend_factory.current().rehearses)
    return {"roles": [] if why else list(contract.ROLES), "most": fault_injection.MOST_KILLS, "why": why}


# --- What belongs to a job -------------------------------------------------------------------------------------------
def artifacts(job: Job) -> QuerySet[Artifact]:
    """What the last attempt that left something has left, by name."""
    last = Artifact.objects.filter(job=job).order_by("-attempt").values("attempt")[:1]
    return Artifact.objects.filter(job=job, attempt__in=last).order_by("name")


def artifact(job: Job, name: str) -> tuple[Artifact, BinaryIO]:
    """One artifact and a reader of its content. Raises NotFound."""
    found = artifacts(job).filter(name=name).first()
    if found is None:
        raise NotFound(f"The job left no file {name[:200]!r}.")
    return found, default_storage().open(found.key)


def files(job: Job) -> dict[str, str]:
    """The code as it was submitted: path to text."""
    return code_snapshots.files_of(job.snapshot)


def document(job: Job) -> dict[str, Any]:
    """The specification with its files, as it could be submitted again."""
    return {**job.spec, "files": files(job)}
