"""Pages of jobs. Each view reads the address, authorises through ``rbac``, calls selectors, and renders.

Changes go through the HTTP API, except for the deletion, which leaves the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_POST, require_safe

from datasets import selectors as datasets
from datasets.selectors import Offer
from datasets.storage.base import StorageError
from jobs import examples
from jobs.backends.local import isolation
from jobs.builds import builders, code_snapshots
from jobs.frameworks.definitions import COMMAND, usual_servers
from jobs.frameworks.definitions import TABLE as FRAMEWORKS
from jobs.lifecycle.states import TERMINAL, JobState
from jobs.messages import jobs as messages
from jobs.models import Job, TerminalRecording
from jobs.selectors import job_list as selectors_job_list
from jobs.selectors import jobs as job_selectors
from jobs.services import jobs as job_services
from jobs.spec import parameters
from jobs.terminals import recordings
from portal.common.errors import NotFound
from portal.common.messages import localized, localized_job
from rbac.access import may
from rbac.models import User
from rbac.scopes import Scope
from rbac.selectors import namespaces_of
from rbac.services import ensure_personal_namespace
from rbac.view_helpers import LAST_NAMESPACE, attempt, enter, user_of


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the jobs of the last visited namespace, if the user is still a member, else of the personal one."""
    last = request.session.get(LAST_NAMESPACE)
    names = {namespace.name for namespace in namespaces_of(request.user)}
    return redirect("jobs", ns=last if last in names else ensure_personal_namespace(user_of(request)).name)


@require_safe
@login_required
def job_list(request: HttpRequest, ns: str) -> HttpResponse:
    """Render the jobs of a namespace. The address contains the filters: it can be stored, sent and reloaded."""
    namespace = enter(request, ns, Scope.JOB_READ)
    filters = selectors_job_list.Filters.of(request.GET)
    cursor = request.GET.get("after", "")
    page = selectors_job_list.page_of(namespace, user_of(request), filters, cursor)
    context = {
        "namespace": namespace,
        "may_write": may(user_of(request), Scope.JOB_WRITE, namespace),
        "filters": filters,
        "filtered": filters.narrow or bool(cursor),
        "jobs": page.jobs,
        "newest": filters.address(owner=filters.owner) if cursor else "",
        "older": filters.address(after=page.older) if page.older else "",
    }
    return render(request, "jobs/list.html", context)


@require_safe
@login_required
def new_job(request: HttpRequest, ns: str) -> HttpResponse:
    """Render the editor and the form. ``?example=`` names the example to start with, ``?clone=`` the job."""
    namespace = enter(request, ns, Scope.JOB_WRITE)
    shown = _examples()
    wanted = _wanted(request, shown)
    page_data = {
        "namespace": namespace.name,
        "examples": shown,
        "frameworks": {
            name: {
                "together": row.together,
                "servers": usual_servers(row, has_dataset=True),
                "may_have_servers": row.may_have_servers,
                "may_have_image": name == COMMAND and builders.runs_images(),
            }
            for name, row in FRAMEWORKS.items()
            if row.specified
        },
        "spec": wanted or (shown[0]["spec"] if shown else {}),
        "wanted": bool(wanted),
    }
    context = {
        "namespace": namespace,
        "examples": shown,
        "datasets": _offers(user_of(request), namespace.name, wanted),
        "page_data": page_data,
    }
    return render(request, "jobs/new.html", context)


def _offers(user: User, namespace: str, wanted: Mapping[str, Any] | None) -> list[Offer]:
    """Return the datasets to choose from, including the version that a cloned job was trained on."""
    offered = datasets.catalogue(user, namespace)
    named = str((wanted or {}).get("dataset") or "")
    known = {"", *(offer.name for offer in offered)}
    return offered if named in known else [Offer(named, ""), *offered]


def _examples() -> list[dict[str, Any]]:
    """Return the shipped examples, with titles and descriptions in the reader's language."""
    chinese = (get_language() or "").startswith("zh")
    return [
        {
            "name": example.name,
            "title": example.title_zh if chinese else example.title,
            "description": example.description_zh if chinese else example.description,
            "spec": dict(example.spec),
        }
        for example in examples.catalogue()
    ]


def _wanted(request: HttpRequest, shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the specification that the address names. Raises NotFound for a job that the user may not see."""
    clone, example = request.GET.get("clone"), request.GET.get("example")
    if clone:
        job = _readable(user_of(request), clone)
        return {**job.spec, "files": _files(job)}
    return next((entry["spec"] for entry in shown if entry["name"] == example), None)


def _readable(user: User, job_id: str | UUID) -> Job:
    try:
        return job_selectors.job_for(user, str(UUID(str(job_id))), Scope.JOB_READ)
    except ValueError:
        raise NotFound(messages.JOB_NOT_FOUND()) from None


def _files(job: Job) -> dict[str, str]:
    """Return the submitted code; empty if the storage fails, so that the page still shows the rest."""
    try:
        return code_snapshots.files_of(job.snapshot)
    except StorageError:
        return {}


def _offer(user: User, job: Job) -> dict[str, Any] | None:
    offer = job_selectors.rehearsal_offer(user, job)
    return offer and {**offer, "why": localized(offer["why"])}


@require_safe
@login_required
def job_page(request: HttpRequest, ns: str, job_id: UUID) -> HttpResponse:
    """Render a job: its curve, replicas, log, events, code and files."""
    namespace = enter(request, ns, Scope.JOB_READ)
    job = _readable(user_of(request), job_id)
    if job.namespace_id != namespace.pk:
        raise NotFound(messages.JOB_NOT_IN_NAMESPACE(namespace=f"{ns!r}"))
    context = {
        "namespace": namespace,
        "job": job,
        "spec": job.spec,
        "parameters": [(name, parameters.text(value)) for name, value in job.spec.get("params", {}).items()],
        "ended": JobState(job.state) in TERMINAL,
        "may_write": may(user_of(request), Scope.JOB_WRITE, namespace),
        "may_exec": may(user_of(request), Scope.JOB_EXEC, namespace) and not isolation.refusal(user_of(request)),
        "recordings": _recordings(user_of(request), job),
        "rehearsal": _offer(user_of(request), job),
        "job_data": localized_job(job_selectors.job_detail(job)),
        "code_data": {"files": _files(job), "entrypoint": job.spec.get("entrypoint", "train.py")},
    }
    return render(request, "jobs/job.html", context)


def _recordings(user: User, job: Job) -> list[TerminalRecording]:
    """Return the recordings of the job's terminals for an owner of the namespace; none for others."""
    return recordings.recordings_for(user, job.pk) if may(user, Scope.NAMESPACE_ADMIN, job.namespace) else []


@require_POST
@login_required
def delete_job(request: HttpRequest, ns: str, job_id: UUID) -> HttpResponse:
    """Delete a job that has ended, with all its stored data."""
    enter(request, ns, Scope.JOB_READ)

    def deed() -> None:
        job_services.delete_job(actor=user_of(request), job_id=job_id)

    done = attempt(request, deed, _("The job has been deleted, with all that it kept."))
    return redirect("jobs", ns=ns) if done else redirect("job", ns=ns, job_id=job_id)
