"""Pages about datasets. Files are uploaded by ``<data-upload>`` through the HTTP API; everything else uses forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Case, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets import garbage_collection, messages, selectors, services, signals
from datasets.api.datasets import file_entry
from datasets.indexing.record_table import ALTERNATIVE
from datasets.models import Dataset, Version
from datasets.states import FILLABLE, VersionState
from datasets.storage.base import StorageError
from datasets.uploads import announcement
from datasets.uploads.upload_states import Place
from portal.common.errors import Conflict, NotFound, ValidationFailed
from portal.common.pagination import paginate
from rbac.access import may
from rbac.models import Namespace
from rbac.scopes import Scope
from rbac.view_helpers import attempt, enter, refused, user_of
from runtime.data.format_selection import FILES
from runtime.data.formats import registry
from runtime.messages import Template

_ROWS = 50
_FILES = 100
_RECORDS = 20
_LISTED = 200  # files listed on the upload page


# --- Lists -----------------------------------------------------------------------------------------------------------
@never_cache
@require_safe
@login_required
def dataset_list(request: HttpRequest, ns: str) -> HttpResponse:
    """The datasets of a namespace, then those of others that the user may read. ``?q=`` searches."""
    namespace, actor = enter(request, ns, Scope.DATASET_READ), user_of(request)
    q = request.GET.get("q", "").strip()[:100]
    own = _page(request, selectors.listed(actor, q, namespace), "own")
    others = _page(request, selectors.listed(actor, q).exclude(namespace=namespace), "others")
    context = {
        "namespace": namespace,
        "may_write": may(actor, Scope.DATASET_WRITE, namespace),
        "q": q,
        "own": own,
        "others": others,
        "shipped": [selectors.shipped_json(info) for info in selectors.public() if q.lower() in info.name],
        "deleted": _deleted(request, namespace),
    }
    return render(request, "datasets/list.html", context)


def _page(request: HttpRequest, rows: Any, name: str) -> dict[str, Any]:
    """Return one page of datasets. The URL keeps the cursor of each list under its name."""
    query = {"limit": str(_ROWS), **({"cursor": request.GET[name]} if name in request.GET else {})}
    actor = user_of(request)
    order = ("namespace__name", "name")
    return {**paginate(rows, query, order=order, render=lambda row: selectors.dataset_json(actor, row))}


def _deleted(request: HttpRequest, namespace: Namespace) -> list[dict[str, Any]]:
    gone = selectors.readable(user_of(request)).filter(namespace=namespace, deleted_at__isnull=False)
    return [{"dataset": dataset, "until": _gone_after(dataset)} for dataset in gone.order_by("name")[:_ROWS]]


def _gone_after(dataset: Dataset) -> Any:
    return dataset.deleted_at and dataset.deleted_at + garbage_collection.grace()


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new_dataset(request: HttpRequest, ns: str) -> HttpResponse:
    """Form that creates a dataset and leads to its upload."""
    namespace = enter(request, ns, Scope.DATASET_WRITE)
    fields = {name: request.POST.get(name, "").strip() for name in ("name", "description", "format")}
    context = {"namespace": namespace, "fields": fields, "formats": _formats()}
    if request.method != "POST":
        return render(request, "datasets/new.html", context)
    try:
        services.create_dataset(actor=user_of(request), namespace_name=ns, **fields)
    except ValidationFailed as error:
        return refused(request, "datasets/new.html", {**context, "errors": error.errors}, error)
    except Conflict as error:
        return refused(request, "datasets/new.html", context, error)
    return redirect("dataset-upload", ns=ns, name=fields["name"])


def _formats() -> list[tuple[str, str]]:
    return [(each.name, each.title) for each in registry.FORMATS.values()] + [(FILES, "")]


# --- One dataset ----------------------------------------------------------------------------------------------------
@never_cache
@require_safe
@login_required
def dataset_page(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """One dataset: a version (``?version=``; default: the newest sealed one), its readers and its uses."""
    actor = user_of(request)
    if f"{ns}/" == selectors.PUBLIC:
        return _shipped_page(request, name)
    dataset = selectors.dataset_for(actor, ns, name)
    shown = selectors.dataset_json(actor, dataset, versions=True)
    version = _wanted(request, dataset)
    context = {
        "dataset": shown,
        "versions": shown["versions"],
        "version": version and selectors.version_json(version),
        "files": _files(request, version),
        "preview": _preview(request, ns, name, version.number) if version and _is_sealed(version) else None,
        "uses": signals.of(actor, dataset.full_name),
        "member": selectors.is_member(actor, dataset),
        "may_write": selectors.may_write(actor, dataset),
        "gone_after": _gone_after(dataset),
    }
    return render(request, "datasets/dataset.html", context)


def _shipped_page(request: HttpRequest, name: str) -> HttpResponse:
    info = selectors.find(selectors.PUBLIC + name)
    context = {
        "dataset": selectors.shipped_json(info),
        "info": info,
        "preview": _preview(request, "public", name, selectors.SHIPPED_VERSION),
        "uses": signals.of(user_of(request), info.name),
    }
    return render(request, "datasets/dataset.html", context)


def _wanted(request: HttpRequest, dataset: Dataset) -> Version | None:
    """Return the version to show. Raises NotFound if the URL names a version that does not exist."""
    versions = selectors.versions_of(user_of(request), dataset)
    number = request.GET.get("version", "")
    if not number:
        return selectors.latest(dataset) or versions.first()
    found = versions.filter(number=int(number)).first() if re.fullmatch(r"[0-9]{1,9}", number) else None
    if found is None:
        raise NotFound(messages.VERSION_NOT_VISIBLE(name=dataset.full_name, number=number[:20]))
    return found


def _is_sealed(version: Version) -> bool:
    return version.state == VersionState.SEALED


def _files(request: HttpRequest, version: Version | None) -> dict[str, Any] | None:
    if version is None:
        return None
    query = {"limit": str(_FILES), **({"cursor": request.GET["files"]} if "files" in request.GET else {})}
    return {**paginate(version.files.filter(blob__isnull=False), query, order=("path",), render=file_entry)}


def _preview(request: HttpRequest, ns: str, name: str, number: int) -> dict[str, Any] | None:
    """Return the preview with pictures assigned to their cells, or None if there is none."""
    try:
        document = selectors.preview_for(user_of(request), ns, name, number)
    except (NotFound, StorageError):
        return None
    pictures = {(one["record"], one["column"]): one for one in document["pictures"]}
    rows = [
        [{"text": cell, "picture": pictures.get((record, column))} for column, cell in enumerate(cells)]
        for record, cells in enumerate(document["records"][:_RECORDS])
    ]
    columns = [{**column, "kinds": _kinds(column["type"])} for column in document["columns"]]
    return {**document, "columns": columns, "rows": rows}


@never_cache
@require_safe
@login_required
def upload(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """Fill a version: that of the URL, else the newest open one, else one that is created with the first file."""
    actor = user_of(request)
    dataset = selectors.dataset_for(actor, ns, name, Scope.DATASET_WRITE)
    if dataset.deleted_at is not None:
        return redirect("dataset", ns=ns, name=name)
    fillable = selectors.versions_of(actor, dataset).filter(state__in=FILLABLE)
    version = _wanted(request, dataset) if request.GET.get("version") else fillable.first()
    if version is not None and version.state not in FILLABLE:
        return redirect("dataset", ns=ns, name=name)
    context = {
        "dataset": selectors.dataset_json(actor, dataset),
        "version": version and selectors.version_json(version),
        "files": version
        and version.files.order_by(Case(When(blob=None, then=Value(0)), default=Value(1)), "path")[:_LISTED],
    }
    return render(request, "datasets/upload.html", context)


# --- Actions ---------------------------------------------------------------------------------------------------------
def _do(request: HttpRequest, ns: str, name: str, deed: Callable[[], object], done: str) -> HttpResponse:
    attempt(request, deed, done)
    return redirect("dataset", ns=ns, name=name)


@require_POST
@login_required
def change(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """Change the description."""

    def deed() -> None:
        fields = {"description": request.POST.get("description", "").strip()}
        services.change_dataset(actor=user_of(request), ns=ns, name=name, fields=fields)

    return _do(request, ns, name, deed, _("The description has been changed."))


@require_POST
@login_required
def set_readers(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """Set who may read it in addition to its namespace: everybody, or the named namespaces."""

    def deed() -> None:
        actor = user_of(request)
        named = re.split(r"[\s,，、]+", request.POST.get("namespaces", "").strip())
        fields = {"visibility": request.POST.get("visibility", "")}
        services.share_dataset(actor=actor, ns=ns, name=name, namespaces=filter(None, named))
        if selectors.dataset_for(actor, ns, name).visibility != fields["visibility"]:
            services.change_dataset(actor=actor, ns=ns, name=name, fields=fields)

    return _do(request, ns, name, deed, _("Who reads it has been changed."))


@require_POST
@login_required
def delete(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """Delete the dataset with all its versions."""

    def deed() -> None:
        services.delete_dataset(actor=user_of(request), ns=ns, name=name)

    return _do(request, ns, name, deed, _("The dataset has been deleted. Until its grace is over it can be restored."))


@require_POST
@login_required
def restore(request: HttpRequest, ns: str, name: str) -> HttpResponse:
    """Restore a deleted dataset."""

    def deed() -> None:
        services.restore_dataset(actor=user_of(request), ns=ns, name=name)

    return _do(request, ns, name, deed, _("The dataset is back."))


@require_POST
@login_required
def delete_version(request: HttpRequest, ns: str, name: str, number: int) -> HttpResponse:
    """Delete one version."""

    def deed() -> None:
        services.delete_version(actor=user_of(request), ns=ns, name=name, number=number)

    return _do(request, ns, name, deed, _("The version has been deleted."))


@require_POST
@login_required
def take_out(request: HttpRequest, ns: str, name: str, number: int, file_id: int) -> HttpResponse:
    """Remove a file from a version that is being filled."""

    def deed() -> None:
        place = Place(ns, name, number)
        announcement.take_out(actor=user_of(request), place=place, file_id=file_id)

    attempt(request, deed, _("The file has been taken out."))
    return redirect(f"{reverse('dataset-upload', kwargs={'ns': ns, 'name': name})}?version={number}")


_KINDS: Mapping[str, Template] = {
    "empty": messages.TYPE_EMPTY,
    "boolean": messages.TYPE_BOOLEAN,
    "integer": messages.TYPE_INTEGER,
    "number": messages.TYPE_NUMBER,
    "text": messages.TYPE_TEXT,
    "bytes": messages.TYPE_BYTES,
    "list": messages.TYPE_LIST,
    "object": messages.TYPE_OBJECT,
}


def _kinds(column_type: str) -> list[str]:
    """Return the kinds of values in a column. Types of arrays, such as ``float32 8 × 8``, stay as they are."""
    return [_KINDS[kind]() if kind in _KINDS else kind for kind in column_type.split(ALTERNATIVE)]
