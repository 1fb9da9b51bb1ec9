"""Elastic jobs, whose number of trainers the platform may change, and their minimal quota amounts."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from jobs.launch import roles
from jobs.lifecycle.states import ACTIVE, JobState
from jobs.models import Attempt, Elastic, ElasticMode, Job
from jobs.spec.model import JobSpec
from runtime import contract
from runtime.messages import restore


def mode() -> ElasticMode:
    """Return the controller's mode: set by an admin, otherwise that of the settings."""
    switched = Elastic.objects.values_list("mode", flat=True).first()
    return ElasticMode(switched or settings.ELASTIC_MODE)


def is_elastic(job: Job) -> bool:
    """Return whether the job is elastic: set by a user, otherwise as in its specification."""
    return bool(job.spec.get("elastic", False)) if job.elastic is None else job.elastic


def elastic_jobs() -> QuerySet[Job]:
    """Return the elastic jobs that have not ended."""
    as_specified = Q(elastic=None, spec__elastic=True)
    return Job.objects.filter(Q(elastic=True) | as_specified, state__in=ACTIVE)


def sizing_of(job: Job) -> str:
    """Return the reason of the last decision on a running job's trainers; empty if the controller decides nothing."""
    if job.state != JobState.RUNNING or not is_elastic(job) or mode() is not ElasticMode.ON:
        return ""
    return restore(Elastic.objects.values_list(f"decisions__{job.pk}__why", flat=True).first() or "")


def at_least(spec: JobSpec) -> JobSpec:
    """Return the specification with its minimum of trainers."""
    return roles.scaled(spec, trainers=spec.trainer.min)


def present_spec(job: Job, pservers: int) -> JobSpec:
    """Return the specification with the desired trainers and ``pservers`` (0: as specified)."""
    return roles.scaled(JobSpec.from_json(job.spec), trainers=job.trainers, pservers=pservers or None)


def pservers_of(jobs: QuerySet[Job]) -> Mapping[UUID, int]:
    """Return the number of parameter servers of the present attempt of each job."""
    counts: dict[UUID, int] = {}
    attempts = Attempt.objects.filter(job__in=jobs, replicas__role=contract.PSERVER)
    for job, number, present in attempts.values_list("job", "number", "job__attempt"):
        counts[job] = counts.get(job, 0) + (number == present)
    return counts


def least_held() -> dict[tuple[UUID, int], dict[str, float]]:
    """Return the amounts to which the controller can reduce running elastic jobs; empty unless its mode is on."""
    return least_of_running() if mode() is ElasticMode.ON else {}


def least_of_running() -> dict[tuple[UUID, int], dict[str, float]]:
    """Return the amounts of running elastic jobs with their minimum of trainers, by job and attempt."""
    running = elastic_jobs().filter(state=JobState.RUNNING)
    servers = pservers_of(running)
    return {
        (job.pk, job.attempt): roles.amounts(at_least(present_spec(job, servers.get(job.pk, 0)))) for job in running
    }
