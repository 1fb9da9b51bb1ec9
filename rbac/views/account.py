"""Pages of the own account: the password and the second factor."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_otp.plugins.otp_totp.models import TOTPDevice

from portal.common.errors import Conflict, Forbidden, NotSignedIn, TooManyRequests, ValidationFailed
from portal.common.messages import localized
from rbac import messages as rbac_messages
from rbac.sign_in import external, password_guessing, registration, second_factor
from rbac.view_helpers import attempt, user_of


@never_cache
@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Name, address, password, second factor, and links to the pages about tokens and sessions."""
    user = user_of(request)
    context = {
        "has_password": user.has_usable_password(),
        "has_second_factor": second_factor.device_of(user) is not None,
        "is_owed": second_factor.is_owed(user),
        "codes_left": second_factor.codes_left(user),
        "connections": external.connections_of(user),
        "providers": external.configured(),
        "next": request.path,
    }
    return render(request, "rbac/account.html", context)


@sensitive_post_parameters("old", "new")
@login_required
@require_POST
def change_password(request: HttpRequest) -> HttpResponse:
    """Change the password. Other browsers are signed out; this one stays signed in."""
    user, keeps = user_of(request), "keep_tokens" in request.POST

    def action() -> None:
        password_guessing.check_present_password(user, request.POST.get("old", ""))
        registration.set_password(actor=user, user=user, password=request.POST.get("new", ""), keep_tokens=keeps)

    done = _("The password has been changed. Other browsers are signed out.")
    revoked = _("The password has been changed. Other browsers are signed out, and your access tokens are revoked.")
    if attempt(request, action, done if keeps else revoked):
        update_session_auth_hash(request, user)
    return redirect("account")


# --- The second factor -----------------------------------------------------------------------------------------------
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def set_up(request: HttpRequest) -> HttpResponse:
    """Explain the second factor; a POST makes a key and shows it, only this once, with the field for the first code of
    the app."""
    user = user_of(request)
    if getattr(request, "impersonator", None) is not None:
        raise Forbidden(rbac_messages.TWO_FACTOR_OF_ANOTHER_ACCOUNT())
    if second_factor.device_of(user) is not None:
        return redirect("account")
    device = second_factor.begin(actor=user) if request.method == "POST" else None
    return _set_up(request, device)


def _set_up(request: HttpRequest, device: TOTPDevice | None, error: str = "") -> HttpResponse:
    context: dict[str, Any] = {"is_owed": second_factor.is_owed(user_of(request)), "error": error}
    if device is not None:
        context |= {"picture": second_factor.picture_of(device), "key": second_factor.key_of(device)}
    return render(request, "rbac/second_factor.html", context, status=422 if error else 200)


@never_cache
@login_required
@require_POST
def switch_on(request: HttpRequest) -> HttpResponse:
    """Switch the second factor on with a code of the app; from now on a code is required. The recovery codes are shown
    only this once."""
    user = user_of(request)
    try:
        codes = second_factor.confirm(actor=user, code=request.POST.get("code", ""))
    except ValidationFailed as error:
        return _set_up(request, second_factor.begun(user), localized(error.errors["code"][0]))
    except Conflict as error:
        messages.error(request, localized(error.detail))
        return redirect("second-factor")
    messages.success(request, gettext("The second factor is on."))
    return render(request, "rbac/recovery_codes.html", {"codes": codes})


@never_cache
@login_required
@require_POST
def renew_codes(request: HttpRequest) -> HttpResponse:
    """Show new recovery codes; requires a code."""
    if not _has_shown_code(request):
        return redirect("account")
    codes = second_factor.renew_codes(actor=user_of(request))
    return render(request, "rbac/recovery_codes.html", {"codes": codes})


@login_required
@require_POST
def switch_off(request: HttpRequest) -> HttpResponse:
    """Switch the second factor off; requires a code."""
    user = user_of(request)
    if _has_shown_code(request):
        attempt(
            request,
            lambda: second_factor.switch_off(actor=user, user=user),
            _("The second factor is off."),
        )
    return redirect("account")


def _has_shown_code(request: HttpRequest) -> bool:
    """Return whether the form has a valid code; else queue the reason as a message."""
    try:
        second_factor.verify(user_of(request), request.POST.get("code", ""))
    except (NotSignedIn, TooManyRequests) as error:
        messages.error(request, localized(error.detail))
        return False
    return True
