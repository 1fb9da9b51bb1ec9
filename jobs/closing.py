"""A namespace with jobs that have not ended is not closed."""

from __future__ import annotations

from typing import Any

from jobs.models import Job
from jobs.states import ACTIVE
from portal.common.errors import Conflict
from rbac.models import Namespace


def object_while_jobs_run(sender: Any, namespace: Namespace, **_: Any) -> None:
    """Raises Conflict with the number of jobs in the way."""
    count = Job.objects.filter(namespace=namespace, state__in=ACTIVE).count()
    if count:
        raise Conflict(
            f"{namespace.name!r} stays open: {count} of its jobs have not ended. Cancel them or wait for their end, "
            "then close it."
        )
