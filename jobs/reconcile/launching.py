"""Launch of an attempt: its plan is given to the backend."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import timedelta

from django.conf import settings

from jobs.backends import factory as backend_factory
from jobs.backends.base import LaunchFailed
from jobs.builds import builders
from jobs.control import keys
from jobs.launch import cluster_namespaces, coordination_accounts, notebooks, planner, roles
from jobs.lifecycle import state_machine
from jobs.lifecycle.state_machine import Event
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.reconcile import job_spans
from jobs.selectors.attempts import data_roots, present_attempt, present_spec, ref_of, token_of
from runtime import contract

WIRE_SECRET_BYTES = 32


def launch(job: Job) -> Event | None:
    """Give the present attempt to the backend. Return None while its namespace is not there."""
    attempt = present_attempt(job)
    if attempt is None:
        return None
    # Trainers that were requested since have no row yet; ``reconciler._staff`` creates them once the job runs.
    rows = attempt.replicas.filter(role=contract.TRAINER).count()
    spec = roles.scaled(present_spec(job), trainers=rows)
    made = builders.of(spec).made(job, spec)
    ref = ref_of(job, attempt)
    try:
        if not cluster_namespaces.ready(job.namespace):
            return None
        arranged = replace(launch_settings(job), coordination=coordination_accounts.arrange(ref))
        secret = secrets.token_hex(WIRE_SECRET_BYTES)
        given = token_of(attempt), secret, keys.current(ref.attempt_id)
        plan = planner.make_plan(ref, job.namespace.name, spec, made, arranged, *given)
        plan = notebooks.completed(plan, job, attempt)
        backend_factory.current().launch(replace(plan, trusted=job.owner.is_admin))
    except LaunchFailed as failure:
        return state_machine.LaunchFailed(job.attempt, failure.why, retryable=failure.retryable)
    except OSError as error:
        return state_machine.LaunchFailed(
            job.attempt, messages.REPLICAS_NOT_STARTED_BECAUSE(error=error), retryable=True
        )
    return state_machine.Launched(job.attempt)


def launch_settings(job: Job) -> planner.LaunchSettings:
    """Return the installation's settings for the job's plan.

    Of the datasets that belong to namespaces, the job has access only to the one it trains on.
    """
    return planner.LaunchSettings(
        ingest_url=settings.INGEST_URL,
        data_path=data_roots(job),
        python=builders.current().python(),
        grace=timedelta(seconds=settings.STOP_GRACE_SECONDS),
        log_cap=settings.LOG_CAP_BYTES,
        checkpoint_seconds=settings.CHECKPOINT_SECONDS,
        outage=settings.OUTAGE_SECONDS,
        registration=settings.REGISTRATION_SECONDS,
        traceparent=job_spans.launch_header(job),
    )
