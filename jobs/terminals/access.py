"""Authorisation of terminals and commands in a replica. Reads the database on each call."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.backends.base import AttemptRef
from jobs.backends.local import isolation
from jobs.lifecycle.states import ENDED
from jobs.messages import terminals as messages
from jobs.models import Job, Replica
from jobs.selectors.attempts import present_attempt, ref_of
from jobs.selectors.jobs import job_for
from portal.common.errors import Conflict, Forbidden, NotFound
from rbac.models import User
from rbac.scopes import Scope
from runtime import contract


@dataclass(frozen=True)
class Target:
    """A running replica, and whether the terminals of its namespace are recorded."""

    job: Job
    ref: AttemptRef
    replica: str
    recorded: bool


def may_exec(user: User, job_id: str) -> Job:
    """Return the job if the user may run programs in its replicas. Raises NotFound and Forbidden."""
    job = job_for(user, job_id, Scope.JOB_EXEC)
    if why := isolation.refusal(user):
        # Without isolation, a terminal would do what only jobs of admins may do.
        raise Forbidden(why)
    return job


def target_for(user: User, job_id: str, name: str) -> Target:
    """Return the replica; without a name the first trainer that runs.

    Raises NotFound, Forbidden, and Conflict for a replica that does not run.
    """
    job = may_exec(user, job_id)
    attempt = present_attempt(job)
    if attempt is None:
        raise Conflict(messages.NO_REPLICA_RUNS())
    rows = Replica.objects.filter(attempt=attempt)
    if name:
        row = rows.filter(name=name).first()
        if row is None:
            raise NotFound(messages.REPLICA_UNKNOWN(name=f"{name!r}"))
        if row.state in ENDED:
            raise Conflict(messages.REPLICA_ENDED(name=name))
    else:
        running = rows.filter(role=contract.TRAINER).exclude(state__in=ENDED)
        row = running.order_by("index").first()
        if row is None:
            raise Conflict(messages.NO_REPLICA_RUNS())
    return Target(job, ref_of(job, attempt), row.name, job.namespace.record_terminals)
