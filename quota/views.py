"""The quota page of a namespace: limits, holdings and usage, the queue with reasons, and requests for more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.common.clock import now
from portal.common.errors import ValidationFailed
from quota import messages, selectors, services
from quota.forms import IN_GIB, SHOWN, amounts_in, given
from quota.models import Kind, RequestState
from rbac.access import may
from rbac.models import Namespace
from rbac.scopes import Scope
from rbac.view_helpers import attempt, enter, user_of

_SPANS = {"day": 1, "week": 7, "month": 30}
_MOST_ROWS = 50
_MOST_KEPT = 10


@never_cache
@require_safe
@login_required
def page(request: HttpRequest, ns: str) -> HttpResponse:
    """Show the quota of a namespace. ``?span=`` (day, week or month) is the period of the hours shown."""
    namespace = enter(request, ns, Scope.QUOTA_READ)
    span = request.GET.get("span", "")
    span = span if span in _SPANS else "week"
    at = now()
    holders = selectors.holders(_MOST_ROWS, namespace)
    quota_requests = selectors.quota_requests(namespace=namespace).order_by("-asked")
    context = {
        "namespace": namespace,
        "bars": bars(namespace),
        "kept": _kept(namespace),
        "largest": selectors.largest_kept(namespace)[:_MOST_KEPT],
        "of_jobs": (Kind.ARTIFACTS, Kind.CHECKPOINTS, Kind.STREAMS),
        "queue": selectors.queue_of(namespace, at, _MOST_ROWS),
        "holders": holders.rows,
        "more_holders": holders.more,
        "spans": list(_SPANS),
        "span": span,
        "usage": selectors.usage(namespace, at - timedelta(days=_SPANS[span]), at),
        "open_request": quota_requests.filter(state=RequestState.OPEN).first(),
        "answered": quota_requests.exclude(state=RequestState.OPEN)[:5],
        "may_ask": may(request.user, Scope.JOB_WRITE, namespace),
        "fields": SHOWN,
        "in_gib": IN_GIB,
    }
    return render(request, "quota/page.html", context)


def bars(namespace: Namespace) -> list[dict[str, Any]]:
    """Return one row per resource: used amount, limit, and the used fraction from 0 to 1."""
    quota = selectors.quota_of(namespace)
    return [
        {
            "resource": name,
            "used": quota["used"][name],
            "limit": quota["limits"][name],
            "borrow": quota["borrow"].get(name, 0),
            "part": _part(quota["used"][name], quota["limits"][name]),
        }
        for name in SHOWN
    ]


def _kept(namespace: Namespace) -> list[dict[str, Any]]:
    """Return one row per kind with stored bytes, the largest first, with its fraction of the total."""
    found = {kind: size for kind, size in selectors.kept_by_kind(namespace).items() if size}
    total = sum(found.values())
    rows = [{"kind": kind, "size": size, "part": size / total} for kind, size in found.items()]
    return sorted(rows, key=lambda row: -row["size"])


def _part(used: float, limit: float | None) -> float:
    if not limit:
        return 1.0 if used and limit == 0 else 0.0
    return min(1.0, used / limit)


@login_required
@require_POST
def ask(request: HttpRequest, ns: str) -> HttpResponse:
    """Create a request for other limits."""

    def action() -> None:
        wanted = given(amounts_in(request.POST, SHOWN))
        if not wanted:
            raise ValidationFailed({"limits": [messages.REQUESTED_RESOURCES_MISSING()]})
        services.ask_for_more(
            actor=user_of(request),
            namespace_name=ns,
            limits=wanted,
            reason=request.POST.get("reason", ""),
        )

    attempt(request, action, _("Your request has been sent to the admins."))
    return redirect("quota", ns=ns)


@login_required
@require_POST
def withdraw(request: HttpRequest, ns: str, wish_id: int) -> HttpResponse:
    """Withdraw an open request of one's own."""

    def action() -> None:
        services.withdraw(actor=user_of(request), request_id=wish_id)

    attempt(request, action, _("The request has been withdrawn."))
    return redirect("quota", ns=ns)
