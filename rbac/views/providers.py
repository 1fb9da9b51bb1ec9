"""External sign-in: the redirect to the provider, the callback, and the page that explains errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from requests import RequestException
from social_core.actions import do_auth, do_complete
from social_core.exceptions import (
    AuthAssociationError,
    AuthCanceled,
    AuthProviderError,
    AuthSessionError,
    SocialAuthBaseException,
)
from social_django.utils import psa

from rbac.models import User
from rbac.sign_in import external, sign_in
from rbac.view_helpers import attempt, user_of
from rbac.views.sign_in import checked, next_page

_log = logging.getLogger(__name__)
_NEXT = "next"
# Sets ``backend`` on the request, with the redirect address; 404 for a provider that is not configured.
_with_backend: Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]] = cast(Any, psa)(
    "complete-provider"
)
# Errors that a response causes when it breaks the protocol: social-auth does not check the types of its values.
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
_BROKEN = _("The other side does not answer as it should. Try again in a while.")
# Messages for people: the first that fits.
_MESSAGES: tuple[tuple[type[Exception], int, str], ...] = (
    (external.SignUpClosed, 403, _("Nobody can open an account by themselves here. Ask an admin.")),
    (AuthCanceled, 403, _("You stopped it there. Nothing has been changed.")),
    (AuthSessionError, 403, _("Sign-in took too long, or was started in another tab or browser. Start again.")),
    (AuthAssociationError, 409, _("That account is connected with another account here.")),
    (AuthProviderError, 502, _BROKEN),
    (SocialAuthBaseException, 403, _("The identity provider did not confirm your identity. Start again.")),
    (Exception, 502, _BROKEN),
)


@never_cache
@require_POST
@_with_backend
def begin(request: Any, backend: str) -> HttpResponse:
    """Redirect to the provider, by a page: the policy of the portal's pages lets no form lead to another site."""
    try:
        there = do_auth(request.backend, redirect_name=_NEXT, user=request.user)
    except (SocialAuthBaseException, RequestException, *_UNREADABLE) as error:
        return _explain(request, error)
    return render(request, "rbac/leaving.html", {"address": there["Location"], "title": _title(backend)})


@never_cache
@require_safe
@_with_backend
def complete(request: Any, backend: str) -> HttpResponse:
    """The callback, with the provider's response."""
    was_signed_in = request.user.is_authenticated
    requested = checked(request, request.session.get(_NEXT) or "")
    try:
        do_complete(request.backend, _admit, user=request.user, redirect_name=_NEXT, request=request)
    except (SocialAuthBaseException, RequestException, *_UNREADABLE) as error:
        return _explain(request, error)
    if was_signed_in:
        return redirect("account")
    if request.user.is_authenticated:
        return redirect(next_page(request, requested))
    if sign_in.pending(request) is not None:
        return redirect("sign-in-code")
    message = gettext("Your account is not open, or not any more. An admin can tell you more.")
    return render(request, "rbac/provider_failed.html", {"message": message, "title": _title(backend)}, status=403)


def _admit(backend: Any, user: User, social_user: Any) -> None:
    """Called by social-auth with the account: begin the session, or require the second factor."""
    request: HttpRequest = backend.strategy.request
    path = f"{type(backend).__module__}.{type(backend).__qualname__}"
    sign_in.admit(request, user, path, checked(request, request.session.get(_NEXT) or ""))


def _explain(request: Any, error: Exception) -> HttpResponse:
    """Return a page instead of another redirect, which could loop."""
    is_unexpected = not isinstance(error, (SocialAuthBaseException, RequestException))
    _log.warning("Signing in through %s failed: %r", request.backend.name, error, exc_info=is_unexpected)
    status, message = next((status, text) for kind, status, text in _MESSAGES if isinstance(error, kind))
    context = {"message": gettext(message), "title": _title(request.backend.name)}
    return render(request, "rbac/provider_failed.html", context, status=status)


def _title(name: str) -> str:
    return next((provider.title for provider in external.configured() if provider.name == name), name)


@login_required
@require_POST
def disconnect(request: HttpRequest, connection_id: int) -> HttpResponse:
    """Remove the account's connection to a provider."""
    attempt(
        request,
        lambda: external.disconnect(actor=user_of(request), connection_id=connection_id),
        _("The connection has been removed."),
    )
    return redirect("account")
