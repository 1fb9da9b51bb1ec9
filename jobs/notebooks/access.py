"""Authorisation of requests to a notebook. Reads the database on each call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import Q

from jobs.backends.base import AttemptRef
from jobs.backends.local import isolation
from jobs.lifecycle.states import ACTIVE, ENDED, ReplicaState
from jobs.messages import notebooks as messages
from jobs.models import Notebook, Replica
from jobs.models.notebooks import base_url as base_url
from jobs.selectors.attempts import present_attempt, ref_of
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, Forbidden, NotFound
from rbac.access import namespace_for
from rbac.models import User
from rbac.scopes import Scope

# The socket of Jupyter's server, in the temporary directory of the replica, and the only replica of the job.
SOCKET = "notebook.socket"
REPLICA = "trainer-0"
# ``last_used`` is written at most this often.
_USE_GRAIN = timedelta(seconds=20)


@dataclass(frozen=True)
class Target:
    """A running notebook: the replica it runs in, and the path of everything of Jupyter, with a slash at both ends."""

    notebook_id: UUID
    namespace: str
    name: str
    ref: AttemptRef
    replica: str
    base_url: str


def notebook_for(user: User, namespace: str, notebook_id: UUID, scope: Scope) -> Notebook:
    """Return the notebook, with its namespace, owner and job, if the user holds ``scope`` in its namespace.

    Raises NotFound and Forbidden.
    """
    held = namespace_for(user, namespace, scope)
    rows = Notebook.objects.select_related("namespace", "owner", "job")
    found = rows.filter(namespace=held, pk=notebook_id).first()
    if found is None:
        raise NotFound(messages.NOTEBOOK_NOT_FOUND(namespace=f"{namespace!r}"))
    return found


def target_for(user: User, namespace: str, notebook_id: UUID) -> Target:
    """Return where a running notebook is reached, for a user who may run programs in it.

    Raises NotFound, Forbidden, and Conflict if it does not run.
    """
    notebook = notebook_for(user, namespace, notebook_id, Scope.JOB_EXEC)
    if why := isolation.refusal(user):
        # Without isolation, a cell would do what only jobs of admins may do.
        raise Forbidden(why)
    job = notebook.job
    if job is None or job.state not in ACTIVE or job.cancel_requested is not None:
        raise Conflict(messages.NOTEBOOK_STOPPED(name=notebook.name))
    attempt = present_attempt(job)
    replica = Replica.objects.filter(attempt=attempt, name=REPLICA).first() if attempt else None
    if attempt is None or replica is None or replica.state in ENDED or replica.state == ReplicaState.WAITING:
        raise Conflict(messages.NOTEBOOK_STARTING(name=notebook.name, state=job.state))
    return Target(
        notebook.pk, namespace, notebook.name, ref_of(job, attempt), replica.name, base_url(namespace, notebook.pk)
    )


def note_use(notebook_id: UUID) -> None:
    """Note that the notebook is used now. Cheap enough for every request: it writes seldom."""
    moment = wall_clock()
    Notebook.objects.filter(Q(last_used__lt=moment - _USE_GRAIN), pk=notebook_id).update(last_used=moment)
