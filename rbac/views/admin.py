"""The admins' pages about accounts and namespaces, and the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.common.errors import Conflict, ValidationFailed
from portal.common.pagination import paginate
from portal.common.tables import csv_line
from rbac import account_admin, messages, throttle
from rbac.access import require_admin
from rbac.audit import log as audit_log
from rbac.audit import queries as audit_queries
from rbac.emails import mail
from rbac.models import Membership, Namespace, User
from rbac.portal_origin import origin_of
from rbac.selectors import person_named
from rbac.sign_in import impersonation, overview, registration
from rbac.sign_in.sign_in import sessions_of
from rbac.view_helpers import attempt, user_of

_TEST_EMAILS = 10  # per hour
View = Callable[..., HttpResponseBase]


def admins_only(view: View) -> View:
    """Decorator for views of signed-in admins of the platform; all others get an error."""

    @never_cache
    @login_required
    def guarded(request: HttpRequest, *args: Any, **values: Any) -> HttpResponseBase:
        require_admin(user_of(request))
        return view(request, *args, **values)

    return guarded


# --- Accounts --------------------------------------------------------------------------------------------------------
@require_safe
@admins_only
def users(request: HttpRequest) -> HttpResponse:
    """All accounts of people, by name; ``?q=`` searches names and addresses."""
    wanted = request.GET.get("q", "").strip()[:100]
    rows = User.objects.filter(service_of=None)
    if wanted:
        rows = rows.filter(Q(username__icontains=wanted) | Q(email__icontains=wanted))
    page = _page(request, rows, ("username",))
    return render(request, "admin/users.html", {"page": page, "q": wanted})


def _page(request: HttpRequest, rows: Any, order: tuple[str, ...]) -> dict[str, Any]:
    query = {"cursor": request.GET.get("cursor", "")}
    return dict(paginate(rows, query, order=order, render=lambda row: row))


@require_safe
@admins_only
def user(request: HttpRequest, username: str) -> HttpResponse:
    """One account, and the actions on it."""
    return _user(request, username)


def _user(request: HttpRequest, username: str, password: str = "") -> HttpResponse:
    person = person_named(username)
    context = {
        "person": person,
        "memberships": Membership.objects.filter(user=person, namespace__closed=None).select_related("namespace"),
        "sessions": sessions_of(person).count(),
        "entries": audit_queries.entries({"target": username})[:20],
        "password": password,
    }
    return render(request, "admin/user.html", context)


@require_POST
@admins_only
def open_account(request: HttpRequest) -> HttpResponse:
    """Open an account for a person. Its password is shown only in this response."""
    made: list[str] = []
    username, by_email = request.POST.get("username", "").strip(), request.POST.get("by") == "letter"

    def do() -> None:
        _person, password = account_admin.open_account(
            actor=user_of(request),
            username=username,
            email=request.POST.get("email", ""),
            reason=request.POST.get("reason", ""),
            by_email=by_email,
            origin=origin_of(request),
        )
        made.append(password)

    done = _("The account is open; the letter is on its way.") if by_email else _("The account is open.")
    if not attempt(request, do, done):
        return redirect("admin-users")
    return _user(request, username, made[0]) if made[0] else redirect("admin-user", username=username)


_DONE = {
    "enable": _("The account is open again."),
    "disable": _("The account is closed; all its sessions have ended."),
    "make-admin": _("The account is an admin of the platform now."),
    "no-admin": _("The account is no admin any more."),
}


@require_POST
@admins_only
def change_user(request: HttpRequest, username: str, deed: str) -> HttpResponse:
    """Open or close an account, make it an admin or remove that role."""
    fields: dict[str, Any] = {"actor": user_of(request), "username": username}
    fields["reason"] = request.POST.get("reason", "")

    def do() -> None:
        if deed in ("enable", "disable"):
            account_admin.set_active(active=deed == "enable", **fields)
        else:
            account_admin.set_admin(admin=deed == "make-admin", **fields)

    attempt(request, do, _DONE[deed])
    return redirect("admin-user", username=username)


@require_POST
@admins_only
def reset_password(request: HttpRequest, username: str) -> HttpResponse:
    """Set a new password, which is shown only in this response."""
    made: list[str] = []

    def do() -> None:
        reason = request.POST.get("reason", "")
        made.append(account_admin.reset_password(actor=user_of(request), username=username, reason=reason))

    if attempt(request, do, _("The password has been reset.")):
        return _user(request, username, made[0])
    return redirect("admin-user", username=username)


@require_POST
@admins_only
def begin_impersonation(request: HttpRequest, username: str) -> HttpResponse:
    """Begin to see the portal as that account does."""

    def do() -> None:
        impersonation.begin(
            actor=user_of(request), username=username, reason=request.POST.get("reason", ""), request=request
        )

    done = attempt(request, do, _("You see the portal as this account does; nothing can be changed."))
    return redirect("home") if done else redirect("admin-user", username=username)


@require_POST
@login_required
def end_impersonation(request: HttpRequest) -> HttpResponse:
    """End the impersonation."""
    return redirect("admin-user", username=impersonation.end(request))


# --- Namespaces ------------------------------------------------------------------------------------------------------
@require_safe
@admins_only
def namespaces(request: HttpRequest) -> HttpResponse:
    """All open namespaces, by name, with their number of members; ``?q=`` searches names."""
    wanted = request.GET.get("q", "").strip()[:100]
    rows = Namespace.objects.filter(closed=None, name__icontains=wanted).annotate(people=Count("memberships"))
    page = _page(request, rows.select_related("personal_of"), ("name",))
    return render(request, "admin/namespaces.html", {"page": page, "q": wanted})


# --- Sign-in ---------------------------------------------------------------------------------------------------------
@require_safe
@admins_only
def sign_in_settings(request: HttpRequest) -> HttpResponse:
    """The settings of sign-in, and the variables that change them."""
    context = {
        "settings": overview.overview(),
        "providers": overview.providers(request.build_absolute_uri),
        "waiting": registration.waiting_accounts().count(),
    }
    return render(request, "admin/sign_in.html", context)


@require_POST
@admins_only
def send_test_email(request: HttpRequest) -> HttpResponse:
    """Send a test e-mail to the admin."""
    actor = user_of(request)

    def do() -> None:
        if not actor.email:
            raise ValidationFailed({"email": [messages.OWN_EMAIL_MISSING()]})
        throttle.take("trial-letter", str(actor.pk), most=_TEST_EMAILS)
        why = mail.try_out(actor.email)
        audit_log.record("mail.try", actor.email, actor=actor, detail={"failed": why})
        if why:
            raise Conflict(messages.EMAIL_NOT_SENT(why=why))

    attempt(request, do, _("The letter has been handed over; look into your mailbox."))
    return redirect("admin-sign-in")


# --- Audit log -------------------------------------------------------------------------------------------------------
@require_safe
@admins_only
def audit_trail(request: HttpRequest) -> HttpResponse:
    """The audit log, newest first, filtered by the address."""
    filters, error = audit_queries.filters_in(request.GET), ""
    try:
        page = _page(request, audit_queries.entries(filters), ("-at", "-id"))
    except ValidationFailed as refused:
        page, error = {"results": [], "next": None}, refused.detail
    context = {"page": page, "filters": filters, "address": audit_queries.address(filters), "error": error}
    return render(request, "admin/audit.html", context)


@require_safe
@admins_only
def audit_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The same as a CSV file: all rows that match the filters, written as they are read."""
    rows = audit_queries.entries(audit_queries.filters_in(request.GET)).iterator(chunk_size=500)
    answer = StreamingHttpResponse(_csv(rows), content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = 'attachment; filename="audit.csv"'
    return answer


def _csv(rows: Any) -> Iterator[str]:
    yield csv_line(audit_queries.COLUMNS)
    for row in rows:
        yield csv_line(_text(cell) for cell in audit_queries.cells(row))


def _text(cell: Any) -> str:
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, sort_keys=True)
