"""Pages of registration: sign-up, confirmation of the address, password reset, and approval by an admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.common.errors import Forbidden, TooManyRequests, ValidationFailed
from portal.common.messages import localized_errors
from rbac import messages as rbac_messages
from rbac.access import require_admin
from rbac.portal_origin import origin_of
from rbac.services import ensure_personal_namespace
from rbac.sign_in import registration
from rbac.view_helpers import attempt, refused, user_of


def _form(
    request: HttpRequest, template: str, context: Mapping[str, Any], action: Callable[[], object]
) -> HttpResponse | None:
    """Render the form's page; return None when it was sent and the action is done."""
    if request.method != "POST":
        return render(request, template, context)
    try:
        action()
    except ValidationFailed as error:
        errors = {field: texts[0] for field, texts in localized_errors(error.errors).items()}
        return render(request, template, {**context, "errors": errors}, status=error.status)
    except TooManyRequests as error:
        return refused(request, template, context, error)
    return None


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Open an account."""
    if not registration.is_possible():
        raise Forbidden(rbac_messages.SIGN_UP_CLOSED())
    fields = {name: request.POST.get(name, "").strip() for name in ("username", "email")}

    def action() -> None:
        registration.sign_up(**fields, password=request.POST.get("password", ""), origin=origin_of(request))

    return _form(request, "rbac/sign_up.html", fields, action) or render(request, "rbac/letter_sent.html", fields)


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """The page of the link in the e-mail. It needs a button and the password, so that a program that only fetches it
    confirms nothing."""
    user = registration.to_confirm(token)

    def action() -> None:
        registration.confirm(token=token, password=request.POST.get("password", ""), origin=origin_of(request))

    answer = _form(request, "rbac/confirm.html", {"username": user.username, "token": token}, action)
    if answer is None:
        messages.success(request, gettext("Your e-mail address is confirmed."))
        return redirect("sign-in")
    return answer


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def reset(request: HttpRequest) -> HttpResponse:
    """Request the e-mail for a password reset."""
    email = request.POST.get("email", "").strip()
    answer = _form(
        request,
        "rbac/reset.html",
        {"email": email},
        lambda: registration.send_reset(email=email, origin=origin_of(request)),
    )
    return answer or render(request, "rbac/letter_sent.html", {"email": email})


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def new_password(request: HttpRequest, who: str, token: str) -> HttpResponse:
    """The page of the link in that e-mail."""
    user = registration.to_reset(who, token)

    def action() -> None:
        registration.set_password(actor=None, user=user, password=request.POST.get("password", ""))

    answer = _form(request, "rbac/new_password.html", {"username": user.username}, action)
    if answer is None:
        messages.success(
            request, gettext("The password has been changed, and your access tokens are revoked. Sign in with it.")
        )
        return redirect("sign-in")
    return answer


@never_cache
@require_safe
@login_required
def welcome(request: HttpRequest) -> HttpResponse:
    """Next steps for a person who is here for the first time."""
    return render(request, "rbac/welcome.html", {"namespace": ensure_personal_namespace(user_of(request))})


# --- Accounts that wait for approval ---------------------------------------------------------------------------------
@never_cache
@require_safe
@login_required
def waiting(request: HttpRequest) -> HttpResponse:
    """For admins: the accounts that wait for approval."""
    require_admin(user_of(request))
    return render(request, "rbac/waiting.html", {"accounts": registration.waiting_accounts()})


@login_required
@require_POST
def approve(request: HttpRequest, username: str) -> HttpResponse:
    """Approve an account."""
    attempt(
        request,
        lambda: registration.approve(actor=user_of(request), username=username, origin=origin_of(request)),
        _("The account has been let in."),
    )
    return redirect("waiting-accounts")


@login_required
@require_POST
def refuse(request: HttpRequest, username: str) -> HttpResponse:
    """Refuse an account."""
    attempt(
        request,
        lambda: registration.refuse(actor=user_of(request), username=username),
        _("The account has been refused."),
    )
    return redirect("waiting-accounts")
