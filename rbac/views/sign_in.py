"""Pages of sign-in and sign-out: the password, the second factor."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from portal.common.errors import NotSignedIn, TooManyRequests
from rbac.sign_in import external, registration
from rbac.sign_in import sign_in as sign_in_sign_in
from rbac.view_helpers import refused

# Pages that redirect a signed-in person, or show nothing: as the next page they would cause a loop.
_ON_THE_WAY_IN = frozenset({"sign-in", "sign-in-code", "sign-out", "begin-provider", "complete-provider"})


def requested_page(request: HttpRequest) -> str:
    """Return the page that was requested before sign-in, if it is one of the portal's; else an empty text."""
    return checked(request, request.POST.get("next") or request.GET.get("next") or "")


def checked(request: HttpRequest, requested: str) -> str:
    """Return the address, if it is a page of this portal that a signed-in person can open, and no part of sign-in."""
    ours = url_has_allowed_host_and_scheme(
        requested, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return requested if ours and _name_of(requested) not in _ON_THE_WAY_IN else ""


def _name_of(address: str) -> str | None:
    """Return the name of the route; None when there is none."""
    try:
        return resolve(urlsplit(address).path).url_name
    except (Resolver404, ValueError):
        return None


def next_page(request: HttpRequest, requested: str) -> str:
    """Return the page after sign-in: the requested page, else home. At the first sign-in of a person who opened the
    account, the page of next steps."""
    at_home = requested in ("", resolve_url("home"))
    due = sign_in_sign_in.is_welcome_due(request)
    return resolve_url("welcome") if at_home and due else requested or resolve_url("home")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """The page that asks for name and password."""
    requested = requested_page(request)
    if request.user.is_authenticated:
        return redirect(requested or resolve_url("home"))
    if request.method != "POST":
        return render(request, "rbac/sign_in.html", _form(request))
    username, password = request.POST.get("username", ""), request.POST.get("password", "")
    try:
        begun = sign_in_sign_in.sign_in(request, username, password, requested)
    except (NotSignedIn, TooManyRequests) as error:
        return refused(request, "rbac/sign_in.html", _form(request), error)
    return redirect(next_page(request, requested)) if begun else redirect("sign-in-code")


def _form(request: HttpRequest) -> dict[str, Any]:
    """Return the template context of the page."""
    return {
        "next": requested_page(request),
        "username": request.POST.get("username", ""),
        "sign_up": registration.is_possible(),
        "providers": external.configured(),
    }


@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """The page that asks for the second factor, after a correct password."""
    if sign_in_sign_in.pending(request) is None:
        return redirect("sign-in")
    if request.method != "POST":
        return render(request, "rbac/code.html")
    try:
        requested = sign_in_sign_in.finish(request, request.POST.get("code", ""))
    except (NotSignedIn, TooManyRequests) as error:
        return refused(request, "rbac/code.html", {}, error)
    return redirect(next_page(request, requested))


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session. A form, not a link: no other site can sign a person out."""
    sign_in_sign_in.sign_out(request)
    return redirect("sign-in")
