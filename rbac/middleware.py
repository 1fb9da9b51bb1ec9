"""Middleware for requests of browsers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from portal.common.clock import now
from portal.common.errors import Forbidden
from portal.common.monitoring import log_context
from portal.common.problems import answer_to, expects_problem
from rbac import messages
from rbac.audit import context as audit_context
from rbac.models import User
from rbac.sign_in.impersonation import IMPERSONATOR
from rbac.sign_in.second_factor import is_owed

_SEEN = "seen"
# Seconds between two writes of the time at which a session was last seen: reading pages must not cost a write each.
_GRAIN = timedelta(minutes=10)


class SeenMiddleware:
    """Records now and then that a session is in use; saving the session updates its row."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        session = request.session
        if session.accessed and SESSION_KEY in session and _is_stale(session.get(_SEEN), now()):
            session[_SEEN] = now().isoformat()
        return response


# The pages that an account without its required second factor can reach.
_ON_THE_WAY = frozenset(
    {
        "second-factor",
        "switch-on-second-factor",
        "sign-out",
        "language",
        "catalogue",
        "healthz",
        "readyz",
    }
)


class OwedSecondFactorMiddleware:
    """Redirects an admin to the setup of a second factor when the platform requires one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        if not settings.ADMIN_SECOND_FACTOR or not isinstance(request.user, User):
            return None
        match = request.resolver_match
        if (match and match.url_name in _ON_THE_WAY) or not is_owed(request.user):
            return None
        if expects_problem(request):
            return answer_to(request, Forbidden(messages.TWO_FACTOR_REQUIRED()))
        return redirect("second-factor")


def _is_stale(seen: str | None, at: datetime) -> bool:
    return seen is None or datetime.fromisoformat(seen) < at - _GRAIN


class ImpersonationMiddleware:
    """Sets ``request.impersonator`` to the admin who impersonates an account, and refuses changes meanwhile. Comes
    after authentication by session."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        impersonator_id = request.session.get(IMPERSONATOR) if SESSION_KEY in request.session else None
        admin = (
            User.objects.filter(pk=impersonator_id, is_superuser=True, is_active=True).first()
            if impersonator_id
            else None
        )
        request.impersonator = admin  # type: ignore[attr-defined]
        if impersonator_id and admin is None:
            request.session.flush()
            return redirect("sign-in")
        if admin and request.method not in ("GET", "HEAD", "OPTIONS") and request.path not in _ways_out():
            return answer_to(request, Forbidden(messages.VIEWING_READ_ONLY(name=f"{request.user.get_username()!r}")))
        return self._get_response(request)


def _ways_out() -> set[str]:
    return {reverse(name) for name in ("end-looking", "sign-out", "language")}


class AuditContextMiddleware:
    """Sets the context of the audit log for the request. Comes after the middleware that sets the address, the request
    id and the impersonator."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        context = audit_context.AuditContext(
            address=audit_context.address_of(request.META.get("REMOTE_ADDR", "")),
            request_id=getattr(request, "request_id", ""),
            impersonator=getattr(request, "impersonator", None),
        )
        # The session was read before, by the middleware of impersonation.
        if (user := request.session.get(SESSION_KEY)) is not None:
            log_context.note(user=int(user))
        with audit_context.use(context):
            return self._get_response(request)
