"""The pages of tokens: those of the account, and the service tokens of a namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, ValidationFailed
from portal.common.messages import localized
from rbac import messages, tokens
from rbac.models import ApiToken, Role
from rbac.scopes import DESCRIPTIONS, OF_NAMESPACES, Scope
from rbac.selectors import service_tokens_of, tokens_of
from rbac.view_helpers import attempt, enter, user_of

_LONGEST_NAME = 100
# Lifetimes in days that the forms offer; the empty one is without expiry.
_LIFETIMES = ("30", "90", "365", "")
_DEFAULT_LIFETIME = "90"


def _choices(scopes: tuple[Scope, ...]) -> dict[str, Any]:
    """Return the choices of the form of a new token."""
    return {
        "scopes": [{"name": scope, "text": gettext(DESCRIPTIONS[scope])} for scope in scopes],
        "lifetimes": _LIFETIMES,
        "default_lifetime": _DEFAULT_LIFETIME,
    }


def _days(request: HttpRequest) -> int | None:
    """Return the lifetime of the form. Raises ValidationFailed."""
    raw = request.POST.get("days", _DEFAULT_LIFETIME)
    if raw not in _LIFETIMES:
        raise ValidationFailed({"days": [messages.TOKEN_LIFETIME_MISSING()]})
    return int(raw) if raw else None


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """The account's tokens. The secret of a new one is only in the response to its form."""
    context = {"tokens": tokens_of(user_of(request)), **_choices(tuple(Scope))}
    return _page(request, "rbac/tokens.html", context, lambda: _make_own(request))


def _make_own(request: HttpRequest) -> tuple[ApiToken, str]:
    name = request.POST.get("name", "").strip()
    if not 0 < len(name) <= _LONGEST_NAME:
        raise ValidationFailed({"name": [messages.TOKEN_NAME_LENGTH()]})
    expires = tokens.in_days(_days(request), wall_clock())
    scopes = request.POST.getlist("scopes")
    return tokens.create_token(actor=user_of(request), name=name, scopes=scopes, expires=expires)


def _page(
    request: HttpRequest, template: str, context: dict[str, Any], make: Callable[[], tuple[ApiToken, str]]
) -> HttpResponse:
    """Render the page; on a POST with the new token, or the reason of the refusal."""
    if request.method != "POST":
        return render(request, template, context)
    try:
        fresh, secret = make()
    except ValidationFailed as error:
        message = next(iter(error.errors.values()))[0]
        return render(request, template, {**context, "error": localized(message)}, status=error.status)
    except Conflict as error:
        return render(request, template, {**context, "error": localized(error.detail)}, status=error.status)
    return render(request, template, {**context, "fresh": fresh, "secret": secret})


@login_required
@require_POST
def revoke_own(request: HttpRequest, token_id: UUID) -> HttpResponse:
    """Revoke one of the account's tokens."""
    tokens.revoke_token(actor=user_of(request), token_id=str(token_id))
    return redirect("tokens")


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def of_namespace(request: HttpRequest, ns: str) -> HttpResponse:
    """The service tokens of a namespace, for its owners."""
    namespace = enter(request, ns, Scope.NAMESPACE_ADMIN)
    context = {
        "namespace": namespace,
        "tokens": service_tokens_of(namespace),
        "roles": list(tokens.SERVICE_ROLES),
        **_choices(OF_NAMESPACES),
    }
    return _page(request, "rbac/service_tokens.html", context, lambda: _make_service(request, ns))


def _make_service(request: HttpRequest, ns: str) -> tuple[ApiToken, str]:
    role = request.POST.get("role", Role.DEVELOPER)
    if role not in tokens.SERVICE_ROLES:
        raise ValidationFailed({"role": [messages.SERVICE_TOKEN_ROLE_INVALID()]})
    return tokens.create_service_token(
        actor=user_of(request),
        namespace_name=ns,
        name=request.POST.get("name", "").strip(),
        role=Role(role),
        scopes=request.POST.getlist("scopes"),
        expires=tokens.in_days(_days(request), wall_clock()),
    )


@login_required
@require_POST
def revoke_of_namespace(request: HttpRequest, ns: str, token_id: UUID) -> HttpResponse:
    """Revoke a service token."""

    def action() -> None:
        tokens.revoke_service_token(actor=user_of(request), namespace_name=ns, token_id=str(token_id))

    attempt(request, action, _("The token has been revoked."))
    return redirect("service-tokens", ns=ns)
