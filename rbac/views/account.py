"""One's own account: the password and the second factor."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from portal.common.errors import NotSignedIn, TooManyRequests, ValidationFailed
from portal.common.sentences import told
from rbac import providers, second_factor, signing_up
from rbac.pages import attempt, user_of


@never_cache
@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Name, address, password, second factor, and the ways to the pages about tokens and sessions."""
    user = user_of(request)
    context = {
        "has_password": user.has_usable_password(),
        "has_second_factor": second_factor.device_of(user) is not None,
        "is_owed": second_factor.is_owed(user),
        "codes_left": second_factor.codes_left(user),
        "connections": providers.connections_of(user),
        "providers": providers.configured(),
        "next": request.path,
    }
    return render(request, "rbac/account.html", context)


@sensitive_post_parameters("old", "new")
@login_required
@require_POST
def change_password(request: HttpRequest) -> HttpResponse:
    """Another password. Other browsers are signed out; this one stays."""
    user = user_of(request)

    def deed() -> None:
        if not user.check_password(request.POST.get("old", "")):
            raise ValidationFailed({"old": ["This is not your present password."]})
        signing_up.set_password(actor=user, user=user, password=request.POST.get("new", ""), request=request)

    if attempt(request, deed, _("The password has been changed. Other browsers are signed out.")):
        update_session_auth_hash(request, user)
    return redirect("account")


# --- The second factor -----------------------------------------------------------------------------------------------
@never_cache
@require_safe
@login_required
def set_up(request: HttpRequest) -> HttpResponse:
    """The picture for the app, and the field for its first code."""
    user = user_of(request)
    if second_factor.device_of(user) is not None:
        return redirect("account")
    device = second_factor.begin(actor=user)
    context = {
        "picture": second_factor.picture_of(device),
        "key": second_factor.key_of(device),
        "is_owed": second_factor.is_owed(user),
    }
    return render(request, "rbac/second_factor.html", context)


@never_cache
@login_required
@require_POST
def switch_on(request: HttpRequest) -> HttpResponse:
    """The app shows the right code: from now on it is asked for. The recovery codes are shown this once."""
    codes: list[str] = []

    def deed() -> None:
        code = request.POST.get("code", "")
        codes.extend(second_factor.confirm(actor=user_of(request), code=code, request=request))

    if not attempt(request, deed, _("The second factor is on.")):
        return redirect("second-factor")
    return render(request, "rbac/recovery_codes.html", {"codes": codes})


@never_cache
@login_required
@require_POST
def renew_codes(request: HttpRequest) -> HttpResponse:
    """New recovery codes, for who shows a code."""
    if not _has_shown_code(request):
        return redirect("account")
    codes = second_factor.renew_codes(actor=user_of(request), request=request)
    return render(request, "rbac/recovery_codes.html", {"codes": codes})


@login_required
@require_POST
def switch_off(request: HttpRequest) -> HttpResponse:
    """Do without the second factor, for who shows a code."""
    user = user_of(request)
    if _has_shown_code(request):
        attempt(
            request,
            lambda: second_factor.switch_off(actor=user, user=user, request=request),
            _("The second factor is off."),
        )
    return redirect("account")


def _has_shown_code(request: HttpRequest) -> bool:
    """Whether the form carries a good code; else the person is told why not."""
    try:
        second_factor.verify(user_of(request), request.POST.get("code", ""))
    except (NotSignedIn, TooManyRequests) as error:
        messages.error(request, told(error.detail))
        return False
    return True
