"""Questions of jobs to the quota. Nothing is reserved here."""

from __future__ import annotations

from django.conf import settings

from jobs.launch import planner
from jobs.models import Job
from jobs.selectors import elastic_jobs
from jobs.selectors.attempts import (
    spec_of,
)
from jobs.spec.model import JobSpec
from portal.common.errors import QuotaExceeded
from quota import ledger
from quota import selectors as quota
from quota.messages import Verdict
from rbac.models import Namespace

# What an attempt may take beyond its time and the grace of its replicas until its last word is in.
_DRAIN_SECONDS = 15.0


def quota_verdict(namespace: Namespace, spec: JobSpec) -> Verdict:
    """Whether the job would be admitted if it came now. Nothing is reserved."""
    requested = planner.amounts(_to_begin_with(spec, elastic=spec.elastic))
    return quota.preview(namespace, requested, length=_longest(spec), priority=spec.priority)


def can_ever_start(bounds: quota.Bounds, spec: JobSpec) -> Verdict:
    """Whether the job would be admitted if nothing else ran."""
    requested = planner.amounts(_to_begin_with(spec, elastic=spec.elastic))
    return quota.if_alone(bounds, requested, length=_longest(spec))


def refuse_what_never_fits(bounds: quota.Bounds, spec: JobSpec) -> None:
    """Raises QuotaExceeded (with ``numbers``) where the job could not start even if nothing else ran."""
    verdict = can_ever_start(bounds, spec)
    if verdict.never:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


def _to_begin_with(spec: JobSpec, *, elastic: bool) -> JobSpec:
    """An elastic job waits for the least that it can go on with, and no longer."""
    return elastic_jobs.at_least(spec) if elastic else spec


def _longest(spec: JobSpec) -> float:
    """How long an attempt can hold its quota, in seconds: its time, and that of its stopping."""
    return spec.timeout.total_seconds() + settings.STOP_GRACE_SECONDS + _DRAIN_SECONDS


def ask_of(job: Job) -> ledger.Ask:
    """What the present attempt of a job that waits asks of the quota."""
    spec = spec_of(job)
    return ledger.Ask(
        job=job.pk,
        attempt=job.attempt,
        amounts=planner.amounts(_to_begin_with(spec, elastic=elastic_jobs.is_elastic(job))),
        length=_longest(spec),
        priority=spec.priority,
        since=job.changed,
        label=job.name,
        owner=job.owner,
    )


def waiting(why: str) -> str:
    """The message of a job that waits, from that of the quota's decision."""
    return f"Waiting for quota. {why}"
