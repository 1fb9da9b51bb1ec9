"""The page of an account's sessions: list them, and end them."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from rbac.sign_in import sign_in
from rbac.view_helpers import user_of


@never_cache
@require_safe
@login_required
def sessions(request: HttpRequest) -> HttpResponse:
    """All browsers in which the account is signed in."""
    rows = [
        {"session": session, "present": sign_in.is_present(request, session)}
        for session in sign_in.sessions_of(user_of(request))
    ]
    return render(request, "rbac/sessions.html", {"rows": rows})


@login_required
@require_POST
def end(request: HttpRequest, handle: str) -> HttpResponse:
    """Sign one browser out."""
    sign_in.end_session(actor=user_of(request), handle=handle, request=request)
    return redirect("sessions")


@login_required
@require_POST
def end_all(request: HttpRequest) -> HttpResponse:
    """Sign out everywhere, including this browser."""
    sign_in.end_all_sessions(actor=user_of(request), user=user_of(request), request=request)
    return redirect("sign-in")
