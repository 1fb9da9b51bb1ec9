"""Receivers of signals: of the closing of a namespace, and of the question which jobs use a dataset."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.urls import reverse

from datasets.signals import Use
from jobs.lifecycle.states import ACTIVE
from jobs.messages import jobs as messages
from jobs.models import Job
from portal.common.errors import Conflict
from rbac.access import Actor, restrict
from rbac.models import Namespace
from rbac.scopes import Scope


def object_while_jobs_run(sender: Any, namespace: Namespace, **_: Any) -> None:
    """Refuse to close a namespace while it has active jobs. Raises Conflict with their number."""
    count = Job.objects.filter(namespace=namespace, state__in=ACTIVE).count()
    if count:
        raise Conflict(messages.NAMESPACE_HAS_ACTIVE_JOBS(namespace=f"{namespace.name!r}", count=count))


_VERSION = "@"


def jobs_with(sender: Any, actor: Actor, dataset: str, most: int, **_: Any) -> list[Use]:
    """Return the newest jobs with the dataset that the actor may see, at most ``most``."""
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
