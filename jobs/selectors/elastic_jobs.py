"""Which jobs the platform may change the number of trainers of, and what those hold at least."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from jobs.launch import planner
from jobs.lifecycle.states import ACTIVE, JobState
from jobs.models import Attempt, Elastic, ElasticMode, Job
from jobs.spec.model import JobSpec
from runtime import contract


def mode() -> ElasticMode:
    """What the controller does: as an admin has switched it, else as the settings say."""
    switched = Elastic.objects.values_list("mode", flat=True).first()
    return ElasticMode(switched or settings.ELASTIC_MODE)


def is_elastic(job: Job) -> bool:
    """As a person has switched it, else as its specification says."""
    return bool(job.spec.get("elastic", False)) if job.elastic is None else job.elastic


def elastic_jobs() -> QuerySet[Job]:
    """Those that have not ended."""
    as_specified = Q(elastic=None, spec__elastic=True)
    return Job.objects.filter(Q(elastic=True) | as_specified, state__in=ACTIVE)


def sizing_of(job: Job) -> str:
    """Why a running job has the number of trainers that it has, as was decided last; empty where nobody decides."""
    if job.state != JobState.RUNNING or not is_elastic(job) or mode() is not ElasticMode.ON:
        return ""
    return str(Elastic.objects.values_list(f"told__{job.pk}__why", flat=True).first() or "")


def at_least(spec: JobSpec) -> JobSpec:
    """The specification with the fewest trainers that it allows."""
    return planner.scaled(spec, trainers=spec.trainer.min)


def present_spec(job: Job, pservers: int) -> JobSpec:
    """The specification with the trainers that are wanted and so many parameter servers (0: as it says)."""
    return planner.scaled(JobSpec.from_json(job.spec), trainers=job.trainers, pservers=pservers or None)


def pservers_of(jobs: QuerySet[Job]) -> Mapping[UUID, int]:
    """How many parameter servers the present attempt of each has."""
    counts: dict[UUID, int] = {}
    attempts = Attempt.objects.filter(job__in=jobs, replicas__role=contract.PSERVER)
    for job, number, present in attempts.values_list("job", "number", "job__attempt"):
        counts[job] = counts.get(job, 0) + (number == present)
    return counts


def least_held() -> dict[tuple[UUID, int], dict[str, float]]:
    """What running elastic jobs can be brought down to, where the controller does that."""
    return least_of_running() if mode() is ElasticMode.ON else {}


def least_of_running() -> dict[tuple[UUID, int], dict[str, float]]:
    """What running elastic jobs hold with the fewest trainers, by job and attempt."""
    running = elastic_jobs().filter(state=JobState.RUNNING)
    servers = pservers_of(running)
    return {
        (job.pk, job.attempt): planner.amounts(at_least(present_spec(job, servers.get(job.pk, 0)))) for job in running
    }
