"""The jobs that use a data set, by what their specifications name."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.urls import reverse

from datasets.uses import Use
from jobs.models import Job
from rbac.access import Actor, restrict
from rbac.scopes import Scope

_VERSION = "@"


def jobs_with(sender: Any, actor: Actor, dataset: str, most: int, **_: Any) -> list[Use]:
    """The newest of those that the actor may see."""
    named = Q(spec__dataset=dataset) | Q(spec__dataset__startswith=dataset + _VERSION)
    jobs = restrict(Job.objects.all(), actor, Scope.JOB_READ).filter(named).select_related("namespace", "owner")
    return [_use(job) for job in jobs.order_by("-created")[:most]]


def _use(job: Job) -> Use:
    return Use(
        name=job.name,
        address=reverse("job", kwargs={"ns": job.namespace.name, "job_id": job.pk}),
        namespace=job.namespace.name,
        owner=job.owner.username,
        state=job.state,
        version=job.spec["dataset"].partition(_VERSION)[2],
        began=job.created,
    )
