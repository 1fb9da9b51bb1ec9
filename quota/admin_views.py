"""Admin pages for quotas: usage by holder, capacity, limits with their history, and requests."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_POST, require_safe

from portal.common.messages import localized
from quota import selectors, services
from quota.forms import IN_GIB, SHARED, SHOWN, amounts_in
from quota.models import Limit, RequestState
from quota.views import bars
from rbac.audit.queries import entries
from rbac.models import Namespace
from rbac.view_helpers import attempt, user_of
from rbac.views.admin import admins_only

_MOST_ROWS = 200


@require_safe
@admins_only
def overview(request: HttpRequest) -> HttpResponse:
    """Show the platform's capacity, the present holders, and the usage of each namespace."""
    holders = selectors.holders(_MOST_ROWS)
    capacity, held = selectors.capacity(), holders.held
    context = {
        "shared": [
            {"resource": name, "used": held[name], "limit": capacity.get(name), "part": _part(held, capacity, name)}
            for name in SHARED
        ],
        "holders": holders.rows,
        "more_holders": holders.more,
        "overview": selectors.namespace_overview(request.GET),
        "open_requests": selectors.quota_requests(state=RequestState.OPEN).count(),
    }
    return render(request, "admin/quotas.html", context)


def _part(held: dict[str, float], capacity: dict[str, float], name: str) -> float:
    return min(1.0, held[name] / capacity[name]) if capacity.get(name) else 0.0


@require_POST
@admins_only
def set_capacity(request: HttpRequest) -> HttpResponse:
    """Set the capacities of the platform."""

    def action() -> None:
        services.set_capacity(
            actor=user_of(request),
            amounts=amounts_in(request.POST, SHARED),
            reason=request.POST.get("reason", ""),
        )

    attempt(request, action, _("The capacity has been set."))
    return redirect("admin-quotas")


@require_safe
@admins_only
def namespace(request: HttpRequest, ns: str) -> HttpResponse:
    """Show the limits of one namespace with their history, and the present holders."""
    target = get_object_or_404(Namespace, name=ns, closed=None)
    own = {row.resource: row for row in Limit.objects.filter(namespace=target)}
    holders = selectors.holders(_MOST_ROWS, target)
    context: dict[str, Any] = {
        "namespace": target,
        "bars": bars(target),
        "fields": [
            {
                "resource": name,
                "own": getattr(own.get(name), "amount", None),
                "borrow": getattr(own.get(name), "borrow", 0),
            }
            for name in SHOWN
        ],
        "lendable": SHARED,
        "in_gib": IN_GIB,
        "holders": holders.rows,
        "more_holders": holders.more,
        "history": entries({"action": "quota.set", "namespace": ns})[:20],
        "quota_requests": selectors.quota_requests(namespace=target).order_by("-asked")[:10],
    }
    return render(request, "admin/quota.html", context)


@require_POST
@admins_only
def set_limits(request: HttpRequest, ns: str) -> HttpResponse:
    """Set the limits of a namespace. An empty field means the default. Held amounts stay held."""
    target = get_object_or_404(Namespace, name=ns, closed=None)

    def action() -> None:
        services.set_limits(
            actor=user_of(request),
            namespace=target,
            limits=amounts_in(request.POST, SHOWN),
            borrow=amounts_in(request.POST, SHARED, prefix="borrow."),
            reason=request.POST.get("reason", ""),
        )

    if attempt(request, action, _("The limits have been set.")) and (over := selectors.overheld(target)):
        messages.warning(request, localized(over))
    return redirect("admin-quota", ns=ns)


@require_safe
@admins_only
def quota_requests(request: HttpRequest) -> HttpResponse:
    """Show requests for more: the open ones, the oldest first, then those answered most recently."""
    context = {
        "open": selectors.quota_requests(state=RequestState.OPEN).order_by("asked")[:_MOST_ROWS],
        "answered": selectors.quota_requests().exclude(state=RequestState.OPEN).order_by("-answered")[:50],
    }
    return render(request, "admin/quota_requests.html", context)


@require_POST
@admins_only
def answer(request: HttpRequest, wish_id: int) -> HttpResponse:
    """Approve or refuse a request."""
    approve = request.POST.get("answer") == "approve"

    def action() -> None:
        reason = request.POST.get("reason", "")
        services.answer(actor=user_of(request), request_id=wish_id, approve=approve, reason=reason)

    attempt(request, action, _("The request has been approved.") if approve else _("The request has been refused."))
    return redirect("admin-quota-requests")
