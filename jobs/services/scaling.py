"""Desired number of replicas of a job, set by a person or by the platform.

Both store a number on the job, which the reconciler applies, and a row that the chart shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.launch import roles
from jobs.lifecycle import wording
from jobs.lifecycle.state_machine import JobState
from jobs.lifecycle.states import CHANGEABLE
from jobs.messages import jobs as messages
from jobs.models import Job, Scaling
from jobs.selectors import admission as quota_questions
from jobs.selectors import attempts, elastic_jobs
from jobs.selectors.jobs import job_for
from jobs.services.notifications import happened, notify
from jobs.spec.model import JobSpec
from jobs.spec.validators import MOST_REPLICAS
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.errors import Conflict, QuotaExceeded, ValidationFailed
from quota import ledger
from quota.selectors import bounds_of
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.scopes import Scope
from runtime import contract
from runtime.messages import paragraph


@transaction.atomic
def scale_job(*, actor: User, job_id: UUID | str, desired: object) -> Job:
    """Set the desired numbers of replicas, such as ``{"trainer": 4}`` or ``{"pserver": 2}``.

    The quota for trainers is reserved at once, and they join and leave while the job runs. A number of parameter
    servers takes effect with the next attempt. ``{"elastic": true}`` lets the platform choose the number of trainers; a
    number of trainers set by a person ends that.

    Raises NotFound, Forbidden, ValidationFailed, QuotaExceeded (with ``numbers``), and Conflict if the job stops or has
    ended.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    spec = attempts.spec_of(job)
    checked = _checked_numbers(desired, spec)
    if checked.keys() & {"trainer", "elastic"} and job.state not in CHANGEABLE:
        raise Conflict(messages.JOB_NOT_SCALABLE(state=job.state))
    if "pserver" in checked and job.state == JobState.SUCCEEDED:
        raise Conflict(messages.JOB_ALREADY_SUCCEEDED())
    _switch(job, spec, checked, actor)
    changed = {role: checked[role] for role in _SCALED if role in checked and checked[role] != _replicas(spec, role)}
    if not changed:
        return job_for(actor, job_id, Scope.JOB_WRITE)
    after = roles.scaled(spec, trainers=changed.get("trainer"), pservers=changed.get("pserver"))
    if "pserver" in changed:
        quota_questions.require_admissible(bounds_of(job.namespace), after)
    if "trainer" in changed:
        _hold_for(job, roles.scaled(attempts.present_spec(job), trainers=changed["trainer"]))
    # The new revision makes a concurrent reconciler that counted the old number of trainers load the job again.
    fields = {f"{role}s": number for role, number in changed.items()}
    Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1, **fields)
    for role, number in changed.items():
        text = _SCALED[role](_replicas(spec, role), number, actor.username, job.state)
        happened(job.pk, job.attempt, "", kind="scaled", text=text)
        if role == contract.TRAINER:
            note_scaling(job, _replicas(spec, role), number, automatic=False)
        detail = {"role": role, "before": _replicas(spec, role), "after": number}
        audit_log.record("job.scale", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
    notify(job)
    return job_for(actor, job_id, Scope.JOB_WRITE)


def note_scaling(job: Job, before: int, after: int, *, automatic: bool, at: datetime | None = None) -> None:
    """Record a change of the desired number of trainers."""
    Scaling.objects.create(
        job_id=job.pk, attempt=job.attempt, at=at or wall_clock(), before=before, after=after, automatic=automatic
    )


def _switch(job: Job, spec: JobSpec, checked: Mapping[str, Any], actor: User) -> None:
    """Switch automatic scaling of the trainers on or off. A number of trainers set by a person switches it off."""
    on = checked.get("elastic", False if "trainer" in checked else None)
    if on is None or on == elastic_jobs.is_elastic(job):
        return
    Job.objects.filter(pk=job.pk).update(elastic=on)
    least, most = spec.trainer.min, wording.trainers(spec.trainer.max)
    text = messages.AUTOMATIC_SCALING_ON(name=actor.username, least=least, trainers=most)
    if not on:
        text = messages.AUTOMATIC_SCALING_OFF(name=actor.username)
    happened(job.pk, job.attempt, "", kind="elastic", text=text)
    audit_log.record("job.elastic", str(job.pk), actor=actor, namespace=job.namespace, detail={"elastic": on})
    notify(job)


def _replicas(spec: JobSpec, role: str) -> int:
    return {contract.TRAINER: spec.trainer, contract.PSERVER: spec.pserver}[role].replicas


def _trainers_scaled(before: int, after: int, name: str, state: str) -> str:
    return messages.SCALED(before=before, replicas=wording.trainers(after), name=name)


def _pservers_scaled(before: int, after: int, name: str, state: str) -> str:
    text = messages.SCALED(before=before, replicas=wording.pservers(after), name=name)
    return text if state == JobState.QUEUED else paragraph(text, messages.SCALING_TAKES_EFFECT_LATER())


_SCALED: Mapping[str, Callable[[int, int, str, str], str]] = {
    contract.TRAINER: _trainers_scaled,
    contract.PSERVER: _pservers_scaled,
}
_SAY_HOW_MANY = messages.REPLICA_COUNTS_MISSING()


def _checked_numbers(desired: object, spec: JobSpec) -> Mapping[str, int]:
    """Check the body of a call and return its numbers by role. Raises ValidationFailed."""
    if not isinstance(desired, Mapping) or not desired or set(desired) - {*_SCALED, "elastic"}:
        raise ValidationFailed({"trainer": [_SAY_HOW_MANY]})
    problems = {role: [problem] for role, number in desired.items() if (problem := _problem(role, number, spec))}
    if problems:
        raise ValidationFailed(problems)
    return desired


def _problem(role: str, number: object, spec: JobSpec) -> str:
    """Return the error message for a desired number; empty if it is valid."""
    if role == "elastic":
        return _problem_of_switch(number, spec)
    if isinstance(number, bool) or not isinstance(number, int):
        return messages.NOT_A_WHOLE_NUMBER()
    if role == contract.PSERVER and not spec.pserver.replicas:
        return paragraph(messages.NO_PSERVERS(), messages.CLONE_TO_ADD_PSERVERS())
    if role == contract.PSERVER:
        return "" if 1 <= number <= MOST_REPLICAS else messages.NUMBER_OUT_OF_RANGE(least=1, most=MOST_REPLICAS)
    least, most = spec.trainer.min, spec.trainer.max
    if least <= number <= most:
        return ""
    bounds = messages.TIME_RANGE(least=least, most=most) if least < most else f"{least}"
    return messages.TRAINER_COUNT_FIXED(allowed=bounds, count=number)


def _problem_of_switch(on: object, spec: JobSpec) -> str:
    if not isinstance(on, bool):
        return messages.NOT_A_BOOLEAN()
    fixed = on and spec.trainer.min == spec.trainer.max
    return messages.ELASTIC_WITHOUT_RANGE() if fixed else ""


def _hold_for(job: Job, spec: JobSpec) -> None:
    """Reserve the quota that the job needs from now on. For a queued job, only refuse what can never fit."""
    if job.state == JobState.QUEUED:
        quota_questions.require_admissible(bounds_of(job.namespace), spec)
        return
    amounts = roles.amounts(spec)
    verdict = ledger.resize(namespace=job.namespace, job=job.pk, attempt=job.attempt, amounts=amounts)
    if not verdict.admitted:
        raise QuotaExceeded(verdict.why, numbers=verdict.numbers)


class Growth(Enum):
    """Result of a change of the number of trainers by the platform."""

    DONE = "done"
    STALE = "stale"  # the job has changed since the decision, or another controller leads now
    REFUSED = "refused"  # the quota has no free capacity for more


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
    """Set the number of trainers that the platform chose, if the job is unchanged since that decision.

    ``leads`` is called in the transaction of the write. It returns whether the controller that decided still leads.
    """
    job = Job.objects.select_for_update().filter(pk=job_id, attempt=attempt, state=JobState.RUNNING).first()
    if job is None or not elastic_jobs.is_elastic(job) or not leads():
        return Growth.STALE
    spec = attempts.present_spec(job)
    if spec.trainer.replicas != before or not spec.trainer.min <= after <= spec.trainer.max:
        return Growth.STALE
    amounts = roles.amounts(roles.scaled(spec, trainers=after))
    if not ledger.resize(namespace=job.namespace, job=job.pk, attempt=attempt, amounts=amounts, now=now).admitted:
        return Growth.REFUSED
    Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1, trainers=after)
    note_scaling(job, before, after, automatic=True, at=now)
    happened(job.pk, job.attempt, "", kind="scaled", text=why)
    notify(job)
    return Growth.DONE


def advise(*, job_id: UUID | str, attempt: int, why: str) -> None:
    """Record what the platform would do with a job's trainers, for the mode in which it only explains."""
    text = messages.SCALING_DRY_RUN(decision=why)
    happened(UUID(str(job_id)), attempt, "", kind="elastic", text=text)
    ring(f"status:{job_id}")
