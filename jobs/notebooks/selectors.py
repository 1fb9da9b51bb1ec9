"""Queries of notebooks, and their documents. Every list starts from ``rbac.access.restrict``."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from jobs.lifecycle.states import ACTIVE, JobState
from jobs.messages import jobs as job_messages
from jobs.messages import notebooks as messages
from jobs.models import Notebook
from jobs.models.notebooks import base_url
from jobs.spec.quantities import memory_text
from portal.common.errors import Forbidden, NotFound
from rbac.access import Actor, may, restrict
from rbac.models import Namespace
from rbac.scopes import Scope


class State(StrEnum):
    """State of a notebook, from that of its job."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


def notebooks_for(actor: Actor) -> QuerySet[Notebook]:
    """Return the notebooks that the actor may see, the last used first."""
    rows = restrict(Notebook.objects.all(), actor, Scope.JOB_READ)
    return rows.select_related("namespace", "owner", "job", "token").order_by("-last_used", "-id")


def notebooks_in(actor: Actor, namespace: Namespace) -> QuerySet[Notebook]:
    return notebooks_for(actor).filter(namespace=namespace)


def notebook_for(actor: Actor, notebook_id: UUID, scope: Scope) -> Notebook:
    """Return the notebook if the actor has ``scope`` for it. Raises NotFound and Forbidden."""
    found = notebooks_for(actor).filter(pk=notebook_id).first()
    if found is None:
        raise NotFound(messages.NOTEBOOK_NOT_VISIBLE())
    if not may(actor, scope, found.namespace):
        raise Forbidden(job_messages.ROLE_INSUFFICIENT(namespace=f"{found.namespace.name!r}", scope=scope))
    return found


def is_active(notebook: Notebook) -> bool:
    """Return whether the job of the notebook has not ended."""
    return notebook.job is not None and notebook.job.state in ACTIVE


def state_of(notebook: Notebook) -> State:
    job = notebook.job
    if job is None:
        return State.STOPPED
    if job.state not in ACTIVE:
        return State.FAILED if job.state == JobState.FAILED else State.STOPPED
    if job.cancel_requested is not None:
        return State.STOPPING
    return State.RUNNING if job.state == JobState.RUNNING else State.STARTING


def idle_since(notebook: Notebook) -> datetime | None:
    """Return since when nothing has run; None while it does not run, or is busy."""
    job = notebook.job
    if job is None or state_of(notebook) is not State.RUNNING or notebook.busy:
        return None
    # Of the present attempt: an earlier one may have ended long ago.
    return max(filter(None, (notebook.active, job.changed)))


def stops_at(notebook: Notebook) -> datetime | None:
    """Return when the notebook is stopped unless something runs; None: it is not."""
    since = idle_since(notebook)
    return since + timedelta(seconds=notebook.idle_seconds) if since and notebook.idle_seconds else None


def path_of(notebook: Notebook) -> str:
    """Return the path of JupyterLab."""
    return f"{base_url(notebook.namespace.name, notebook.pk)}lab"


def job_path(notebook: Notebook, job_id: str) -> str:
    """Return the path of a job's page."""
    return f"/n/{notebook.namespace.name}/jobs/{job_id}"


def notebook_json(notebook: Notebook) -> dict[str, Any]:
    """Return a notebook as the API renders it."""
    return {
        "id": str(notebook.pk),
        "name": notebook.name,
        "namespace": notebook.namespace.name,
        "owner": notebook.owner.username,
        "state": str(state_of(notebook)),
        "why": notebook.job.why if notebook.job else "",
        "url": path_of(notebook),
        "job": str(notebook.job_id) if notebook.job_id else None,
        "cpu": notebook.cpu,
        "memory": memory_text(notebook.memory),
        "gpu": notebook.gpu,
        "requirements": notebook.requirements,
        "source": notebook.source,
        "busy": notebook.busy if is_active(notebook) else False,
        "idle_seconds": notebook.idle_seconds,
        "stops_at": _when(stops_at(notebook)),
        "created": _when(notebook.created),
        "last_used": _when(notebook.last_used),
    }


def _when(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
