"""The present attempt of a job: its reference, token, specification, data, and grace period."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.utils.crypto import salted_hmac

from datasets import materialization
from datasets import selectors as datasets
from datasets.states import VersionState
from jobs.backends.base import AttemptRef
from jobs.launch import roles
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.state_machine import JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, Transition
from jobs.spec.model import JobSpec
from runtime import contract

# Upper bound of the grace period of replicas while the whole portal is stopped.
INTERRUPTION_GRACE = timedelta(seconds=2)


def token_of(attempt: Attempt) -> str:
    """Return the token of the attempt's agents. It is derived, so that a second launch gives them the same one."""
    return "rga_" + salted_hmac("jobs.attempt-token", str(attempt.pk), algorithm="sha256").hexdigest()


def ref_of(job: Job, attempt: Attempt) -> AttemptRef:
    return AttemptRef(str(job.pk), str(attempt.pk), attempt.number, job.namespace.name)


def present_attempt(job: Job) -> Attempt | None:
    return Attempt.objects.filter(job=job, number=job.attempt).first()


def was_launched(job: Job, number: int) -> bool:
    """Return whether the backend may know the attempt: it is given an attempt only in the state LAUNCHING."""
    return Transition.objects.filter(job=job, attempt=number, state=JobState.LAUNCHING).exists()


def spec_of(job: Job) -> JobSpec:
    """Return the specification with the desired trainers and the parameter servers of the next attempt."""
    return roles.scaled(JobSpec.from_json(job.spec), trainers=job.trainers, pservers=job.pservers)


def present_spec(job: Job) -> JobSpec:
    """Return ``spec_of`` with the parameter servers of the present attempt, if there is one."""
    attempt, spec = present_attempt(job), spec_of(job)
    rows = attempt.replicas.filter(role=contract.PSERVER).count() if attempt else 0
    return roles.scaled(spec, pservers=rows or None)


def data_gone(job: Job, *, for_good: bool = False) -> str:
    """Return why the job cannot train on its dataset any more; empty if it can.

    ``for_good``: check only for a version that is deleted and whose grace period is over. A job that was started before
    the deletion continues until then.
    """
    named = str(job.spec.get("dataset", ""))
    version = job.dataset_version
    if version is None:
        return messages.DATASET_PURGED(name=named) if "@" in named else ""
    if for_good:
        return ""
    if version.dataset.deleted_at is not None:
        return messages.DATASET_DELETED(name=named)
    if version.state != VersionState.SEALED:
        return messages.DATASET_VERSION_DELETED(name=named)
    return ""


def stop_grace(job: Job) -> timedelta:
    """Return the time that replicas get to stop. Preempted replicas get enough to write a checkpoint first."""
    usual = timedelta(seconds=settings.STOP_GRACE_SECONDS)
    if job.state != JobState.STOPPING:
        return usual  # of a single replica that is not desired any more
    if job.reason == Reason.PREEMPTED:
        return max(usual, timedelta(seconds=settings.PREEMPTION_GRACE_SECONDS))
    return min(usual, INTERRUPTION_GRACE) if job.reason == Reason.INTERRUPTED else usual


def data_roots(job: Job) -> tuple[Path, ...]:
    """Return the directories of this machine with the datasets that the job may read, by name."""
    own = () if job.dataset_version_id is None else (materialization.root_of(job.dataset_version_id),)
    return (*own, *datasets.data_path())


# States in which the backend is queried.
OBSERVED = frozenset({JobState.REGISTERING, JobState.RUNNING, JobState.STOPPING})
