"""Pages of notebooks. Each view reads the address, authorises through ``rbac``, calls a selector or service, and
renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, gettext, ngettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_POST, require_safe

from datasets import selectors as datasets
from jobs import examples
from jobs.models import Notebook
from jobs.notebooks import selectors, services, sources
from jobs.notebooks.selectors import State
from jobs.selectors.jobs import job_for
from portal.common.clock import now as wall_clock
from portal.common.errors import RegattaError, ValidationFailed
from rbac.access import may
from rbac.models import Namespace
from rbac.scopes import Scope
from rbac.view_helpers import attempt, enter, refused, user_of

_PAGE = "notebooks/list.html"
# Notebooks on the page. The API lists all of them.
_MOST = 100
_IDLE_TIMES = ("15m", "30m", "1h", "4h", "1d", "0")


@dataclass(frozen=True)
class Row:
    """A notebook as the page shows it. ``countdown``: when it is stopped, in words."""

    notebook: Notebook
    state: State
    countdown: str
    path: str


@require_safe
@login_required
def notebook_list(request: HttpRequest, ns: str) -> HttpResponse:
    """Render the notebooks of a namespace. ``?open=ID`` opens that one as soon as it runs."""
    namespace = enter(request, ns, Scope.JOB_READ)
    polled = "HX-Request" in request.headers
    # The page's script opens it: the answer to a form must not lead to the notebook's own origin.
    if polled and (opened := _awaited(request, namespace)) and opened.state is State.RUNNING:
        return HttpResponse(headers={"HX-Redirect": opened.path})
    return render(request, _PAGE, {**_context(request, namespace, {}), "polled": polled})


def _awaited(request: HttpRequest, namespace: Namespace) -> Row | None:
    try:
        wanted = UUID(request.GET.get("open", ""))
    except ValueError:
        return None
    notebook = selectors.notebooks_in(request.user, namespace).filter(pk=wanted).first()
    return _row(notebook, wall_clock()) if notebook else None


def _context(request: HttpRequest, namespace: Namespace, fields: Mapping[str, str]) -> dict[str, Any]:
    now = wall_clock()
    rows = [_row(notebook, now) for notebook in selectors.notebooks_in(request.user, namespace)[:_MOST]]
    chinese = (get_language() or "").startswith("zh")
    offers = datasets.catalogue(user_of(request), namespace.name)
    return {
        "namespace": namespace,
        "rows": rows,
        "may_write": may(user_of(request), Scope.JOB_WRITE, namespace),
        "may_open": may(user_of(request), Scope.JOB_EXEC, namespace),
        "awaited": request.GET.get("open", ""),
        "fields": {"cpu": "1", "memory": "2Gi", "gpu": "0", "idle": "30m", "kind": sources.EMPTY, **fields},
        "idle_times": [(text, _length(text)) for text in _IDLE_TIMES],
        "templates": [(one.name, one.title_zh if chinese else one.title) for one in examples.catalogue()],
        "datasets": [offer.name for offer in offers],
    }


def _row(notebook: Notebook, now: datetime) -> Row:
    state = selectors.state_of(notebook)
    return Row(notebook, state, _countdown(notebook, state, now), _start_page(notebook))


def _countdown(notebook: Notebook, state: State, now: datetime) -> str:
    """Return in words when the notebook is stopped; empty unless it runs."""
    if state is not State.RUNNING:
        return ""
    at = selectors.stops_at(notebook)
    if at is None:
        return gettext("Busy") if notebook.busy else gettext("Never stopped")
    minutes = max(0, round((at - now).total_seconds() / 60))
    if not minutes:
        return gettext("Stops in less than a minute")
    return ngettext("Stops in %(count)d min", "Stops in %(count)d min", minutes) % {"count": minutes}


def _length(text: str) -> str:
    number, unit = int(text.rstrip("mhd")), text[-1]
    forms: Mapping[str, Callable[[int], str]] = {
        "m": lambda count: ngettext("%(count)d minute", "%(count)d minutes", count),
        "h": lambda count: ngettext("%(count)d hour", "%(count)d hours", count),
        "d": lambda count: ngettext("%(count)d day", "%(count)d days", count),
    }
    return forms[unit](number) % {"count": number} if number else gettext("never")


def _start_page(notebook: Notebook) -> str:
    """Return the path of JupyterLab with the file that the notebook starts from, if it has one."""
    path = selectors.path_of(notebook)
    return path if notebook.source.get("kind") == sources.GIT else f"{path}/tree/{notebook.name}/{notebook.name}.ipynb"


@require_POST
@login_required
def create(request: HttpRequest, ns: str) -> HttpResponse:
    """Create a notebook from the form, and start it."""
    namespace = enter(request, ns, Scope.JOB_WRITE)
    given = {name: str(value) for name, value in request.POST.items() if name != "csrfmiddlewaretoken"}
    try:
        services.count_start(user_of(request))
        made, _created = services.create(actor=user_of(request), namespace=ns, body=_body(given))
        services.start(actor=user_of(request), notebook_id=made.pk)
    except RegattaError as error:
        errors = error.errors if isinstance(error, ValidationFailed) else {}
        context = {**_context(request, namespace, given), "errors": errors, "open_form": True}
        return refused(request, _PAGE, context, error)
    return HttpResponseRedirect(f"{reverse('notebooks', kwargs={'ns': ns})}?open={made.pk}")


def _body(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the form in the form of the API."""
    gpu = given.get("gpu", "")
    kind = given.get("kind", sources.EMPTY)
    source = {"kind": kind, "name": given.get("template", ""), "job": given.get("job", "").strip()}
    return {
        **{name: given[name] for name in ("name", "cpu", "memory", "idle", "requirements") if given.get(name)},
        "gpu": int(gpu[:9]) if gpu.isdecimal() else 0,
        "source": {**source, "dataset": given.get("dataset", ""), "address": given.get("address", "")},
    }


@require_POST
@login_required
def start(request: HttpRequest, ns: str, notebook_id: UUID) -> HttpResponse:
    """Start a notebook, and open it once it runs."""
    enter(request, ns, Scope.JOB_WRITE)

    def action() -> None:
        services.count_start(user_of(request))
        services.start(actor=user_of(request), notebook_id=notebook_id)

    if attempt(request, action, _("The notebook is starting.")):
        return HttpResponseRedirect(f"{reverse('notebooks', kwargs={'ns': ns})}?open={notebook_id}")
    return redirect("notebooks", ns=ns)


@require_POST
@login_required
def stop(request: HttpRequest, ns: str, notebook_id: UUID) -> HttpResponse:
    """Stop a notebook."""
    enter(request, ns, Scope.JOB_WRITE)
    attempt(
        request,
        lambda: services.stop(actor=user_of(request), notebook_id=notebook_id),
        _("The notebook is stopping. Its files are kept."),
    )
    return redirect("notebooks", ns=ns)


@require_POST
@login_required
def delete(request: HttpRequest, ns: str, notebook_id: UUID) -> HttpResponse:
    """Delete a notebook."""
    enter(request, ns, Scope.JOB_WRITE)
    attempt(
        request,
        lambda: services.delete(actor=user_of(request), notebook_id=notebook_id),
        _("The notebook was deleted. Its files are still in the home of the namespace."),
    )
    return redirect("notebooks", ns=ns)


@require_POST
@login_required
def open_job(request: HttpRequest, ns: str, job_id: UUID) -> HttpResponse:
    """Open a notebook with the code and the curves of a job."""
    enter(request, ns, Scope.JOB_WRITE)
    job = job_for(request.user, job_id, Scope.JOB_READ)
    return _open(request, ns, {"kind": sources.JOB, "job": str(job.pk)}, job.name)


@require_POST
@login_required
def open_dataset(request: HttpRequest, ns: str) -> HttpResponse:
    """Open a notebook that reads the dataset of the form's field ``dataset``."""
    enter(request, ns, Scope.JOB_WRITE)
    name = request.POST.get("dataset", "")
    return _open(request, ns, {"kind": sources.DATASET, "dataset": name}, name.partition("@")[0].rpartition("/")[2])


def _open(request: HttpRequest, ns: str, source: Mapping[str, str], name: str) -> HttpResponse:
    found: list[Notebook] = []

    def action() -> None:
        services.count_start(user_of(request))
        found.append(services.open_for(actor=user_of(request), namespace=ns, source=source, name=name))

    attempt(request, action, _("The notebook is starting."))
    query = f"?open={found[0].pk}" if found else ""
    return HttpResponseRedirect(f"{reverse('notebooks', kwargs={'ns': ns})}{query}")
