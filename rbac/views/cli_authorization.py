"""The page on which a person authorises the command on a computer."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from portal.common.clock import now as wall_clock
from portal.common.errors import ValidationFailed
from portal.common.messages import localized
from portal.common.problems import content_security_policy
from rbac import messages
from rbac.sign_in import cli_authorization
from rbac.view_helpers import user_of

LIFETIMES = ("30", "90", "365", "")
DEFAULT_LIFETIME = "90"
_LOWEST_PORT, _HIGHEST_PORT = 1024, 65535
_LONGEST_STATE = 128
_ODD_PORT = messages.LOGIN_ADDRESS_INVALID()


@dataclass(frozen=True)
class ConnectionRequest:
    """The parameters of the command's request. Without a ``port`` it cannot be called back, and the page shows the
    code."""

    name: str
    challenge: str
    port: int | None
    state: str

    @classmethod
    def of(cls, query: QueryDict) -> ConnectionRequest:
        """Parse the query. Raises ValidationFailed."""
        name, challenge, state = (query.get(key, "") for key in ("name", "challenge", "state"))
        cli_authorization.check(name, challenge)
        port = query.get("port", "")
        if port and not (port.isascii() and port.isdigit() and _LOWEST_PORT <= int(port[:6]) <= _HIGHEST_PORT):
            raise ValidationFailed({"port": [_ODD_PORT]})
        return cls(name, challenge, int(port) if port else None, state[:_LONGEST_STATE])

    @property
    def origin(self) -> str:
        """The address to which the code is sent: the computer of the browser, and no other."""
        return f"http://127.0.0.1:{self.port}"


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def connect(request: HttpRequest) -> HttpResponse:
    """Show the request; after approval send the code to the port of this computer, or show it to be typed in."""
    try:
        connection_request = ConnectionRequest.of(request.POST if request.method == "POST" else request.GET)
        if request.method == "POST":
            return _agreed(request, connection_request)
    except ValidationFailed as error:
        message = next(iter(error.errors.values()))[0]
        return render(request, "rbac/connect.html", {"error": localized(message)}, status=error.status)
    page = render(
        request,
        "rbac/connect.html",
        {"connection": connection_request, "lifetimes": LIFETIMES, "default_lifetime": DEFAULT_LIFETIME},
    )
    if connection_request.port:
        # The browser follows the redirect after the form only when the policy of the form's page names its target.
        policy = content_security_policy(request.csp_nonce, request.get_host())  # type: ignore[attr-defined]
        page.headers["Content-Security-Policy"] = policy.replace(
            "form-action 'self'", f"form-action 'self' {connection_request.origin}"
        )
    return page


def _agreed(request: HttpRequest, connection_request: ConnectionRequest) -> HttpResponse:
    days = request.POST.get("days", DEFAULT_LIFETIME)
    if days not in LIFETIMES:
        raise ValidationFailed({"days": [messages.TOKEN_LIFETIME_MISSING()]})
    code = cli_authorization.grant(
        actor=user_of(request),
        name=connection_request.name,
        challenge=connection_request.challenge,
        days=int(days) if days else None,
        now=wall_clock(),
    )
    if connection_request.port is None:
        return render(request, "rbac/connect.html", {"code": code})
    return redirect(f"{connection_request.origin}/?{urlencode({'code': code, 'state': connection_request.state})}")
