"""The page *System* of the admins: state of the installation, diagnostics, and failed e-mails."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_POST, require_safe

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict
from portal.common.version import VERSION
from portal.system import diagnostics, messages, overview
from portal.system.document import document
from rbac.audit import log as audit_log
from rbac.emails import failed_emails
from rbac.view_helpers import attempt, user_of
from rbac.views.admin import admins_only

_SECTIONS = {
    "components": _("Components"),
    "tasks": _("Failing periodic tasks"),
    "servers": _("Servers"),
    "disk": _("Disk space"),
    "queue": _("Queue"),
    "streams": _("Streams"),
    "expiry": _("Expiry"),
    "mail": _("E-mail"),
}
# Entries that are not in this table, such as tasks, are shown by their name.
_LABELS = {
    "web": _("Web server"),
    "worker": _("Worker"),
    "sweep": _("Sweep"),
    "database": _("Database"),
    "restoration": _("Restoration of the database"),
    "redis": "Redis",
    "etcd": "etcd",
    "kubernetes": "Kubernetes",
    "storage": _("Storage"),
    "data": _("Data directory"),
    "jobs": _("Jobs"),
    "streams": _("Streams"),
    "certificate": _("TLS certificate"),
    "tokens": _("Access tokens"),
    "service-account": _("Service account token"),
    "registry": _("Registry credentials"),
    "e-mail": _("Sending"),
}


@require_safe
@admins_only
def page(request: HttpRequest) -> HttpResponse:
    """Render the page, which renews its contents."""
    return render(request, "admin/system.html", _context())


@require_safe
def now(request: HttpRequest) -> HttpResponseBase:
    """Render the contents of the page. A caller who is no longer signed in reloads the page, and then signs in."""
    if not request.user.is_authenticated:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return _now(request)


@admins_only
def _now(request: HttpRequest) -> HttpResponse:
    return render(request, "admin/_system.html", _context())


def _context() -> dict[str, Any]:
    seen = document(overview.overview())
    rows = [_row(entry) for entry in seen["entries"]]
    sections = [
        {"key": key, "title": gettext(title), "rows": [row for row in rows if row["section"] == key]}
        for key, title in _SECTIONS.items()
    ]
    return {"seen": seen, "sections": [section for section in sections if section["rows"]], "version": VERSION}


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its label and the values that its details show."""
    facts, label = entry["facts"], _LABELS.get(entry["name"])
    row = {**entry, "label": gettext(label) if label else entry["name"]}
    if entry["section"] == "disk":
        row["used"] = facts["total"] - facts["free"]
        row["inodes_used"] = str(facts["inodes"] - facts["inodes_free"])
    if entry["section"] == "queue":
        row["states"] = [(state, count) for state, count in facts["states"].items() if count]
    return row


@require_POST
@admins_only
def download_diagnostics(request: HttpRequest) -> StreamingHttpResponse:
    """Send the archive of diagnostics."""
    at = wall_clock()
    audit_log.record("system.diagnostics", "system", actor=user_of(request))
    answer = StreamingHttpResponse(diagnostics.archive(at), content_type="application/zip")
    answer.headers["Content-Disposition"] = f'attachment; filename="regatta-diagnostics-{at:%Y%m%d-%H%M%S}.zip"'
    return answer


@require_POST
@admins_only
def send_email_again(request: HttpRequest, failure_id: int) -> HttpResponse:
    """Make an e-mail that waits after a failure due now."""

    def do() -> None:
        if not failed_emails.send_again(failure_id, wall_clock()):
            raise Conflict(messages.EMAIL_NOT_WAITING())
        audit_log.record("mail.send-again", str(failure_id), actor=user_of(request))
        overview.forget()

    attempt(request, do, _("The e-mail is sent with the next sweep."))
    return redirect("admin-system")
