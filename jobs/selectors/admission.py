"""Quota queries for jobs. Nothing is reserved here."""

from __future__ import annotations

from django.conf import settings

from jobs.launch import roles
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.selectors import elastic_jobs
from jobs.selectors.attempts import (
    spec_of,
)
from jobs.spec.model import JobSpec
from portal.common.errors import QuotaExceeded
from quota import ledger
from quota import selectors as quota
from quota.verdicts import Verdict
from rbac.models import Namespace
from runtime.messages import paragraph

# Seconds from the end of the replicas' grace period until the last report of an attempt has arrived.
_DRAIN_SECONDS = 15.0


def quota_verdict(namespace: Namespace, spec: JobSpec) -> Verdict:
    """Return whether the job would be admitted now. Nothing is reserved."""
    requested = roles.amounts(_initial_spec(spec, elastic=spec.elastic))
    return quota.preview(namespace, requested, length=_holding_seconds(spec), priority=spec.priority)


def can_ever_start(bounds: quota.Bounds, spec: JobSpec) -> Verdict:
    """Return whether the job would be admitted if nothing else ran."""
    requested = roles.amounts(_initial_spec(spec, elastic=spec.elastic))
    return quota.if_alone(bounds, requested, length=_holding_seconds(spec))


def require_admissible(bounds: quota.Bounds, spec: JobSpec) -> None:
    """Raise QuotaExceeded (with ``numbers``) if the job could not start even if nothing else ran."""
    verdict = can_ever_start(bounds, spec)
    if verdict.never:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


def _initial_spec(spec: JobSpec, *, elastic: bool) -> JobSpec:
    """Return the specification to admit: an elastic job starts as soon as its minimum of trainers fits."""
    return elastic_jobs.at_least(spec) if elastic else spec


def _holding_seconds(spec: JobSpec) -> float:
    """Return how long an attempt can hold its quota, in seconds: its timeout and the time to stop."""
    return spec.timeout.total_seconds() + settings.STOP_GRACE_SECONDS + _DRAIN_SECONDS


def reservation_request(job: Job) -> ledger.ReservationRequest:
    """Return the quota request of the present attempt of a waiting job."""
    spec = spec_of(job)
    return ledger.ReservationRequest(
        job=job.pk,
        attempt=job.attempt,
        amounts=roles.amounts(_initial_spec(spec, elastic=elastic_jobs.is_elastic(job))),
        length=_holding_seconds(spec),
        priority=spec.priority,
        since=job.changed,
        label=job.name,
        owner=job.owner,
    )


def waiting(why: str) -> str:
    """Return the message of a waiting job from that of the quota's decision."""
    return paragraph(messages.WAITING_FOR_QUOTA(), why)
