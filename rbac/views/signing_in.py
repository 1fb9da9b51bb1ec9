"""Signing in and out: the password, the second factor."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from portal.common.errors import NotSignedIn, TooManyRequests
from portal.common.sentences import told
from rbac import providers, signing_in, signing_up


def wanted_page(request: HttpRequest) -> str:
    """The page that was wanted before sign-in, if it is one of ours; else nothing."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if ours else ""


def way_on(request: HttpRequest, wanted: str) -> str:
    """Where to go after sign-in: the wanted page, else home; for the first time of who opened the account, the page
    that says what to do next."""
    at_home = wanted in ("", resolve_url("home"))
    due = signing_in.is_welcome_due(request)
    return resolve_url("welcome") if at_home and due else wanted or resolve_url("home")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """The page that asks for name and password."""
    wanted = wanted_page(request)
    if request.user.is_authenticated:
        return redirect(wanted or resolve_url("home"))
    if request.method != "POST":
        return _ask(request)
    username, password = request.POST.get("username", ""), request.POST.get("password", "")
    try:
        begun = signing_in.sign_in(request, username, password, wanted)
    except (NotSignedIn, TooManyRequests) as error:
        return _ask(request, told(error.detail), error.status)
    return redirect(way_on(request, wanted)) if begun else redirect("sign-in-code")


def _ask(request: HttpRequest, error: str = "", status: int = 200) -> HttpResponse:
    context = {
        "next": wanted_page(request),
        "error": error,
        "username": request.POST.get("username", ""),
        "sign_up": signing_up.is_possible(),
        "providers": providers.configured(),
    }
    return render(request, "rbac/sign_in.html", context, status=status)


@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """The page that asks for the second factor, after a password that was right."""
    if signing_in.pending(request) is None:
        return redirect("sign-in")
    if request.method != "POST":
        return render(request, "rbac/code.html")
    try:
        wanted = signing_in.finish(request, request.POST.get("code", ""))
    except (NotSignedIn, TooManyRequests) as error:
        return render(request, "rbac/code.html", {"error": told(error.detail)}, status=error.status)
    return redirect(way_on(request, wanted))


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session. A form, not a link: no other site can sign somebody out."""
    signing_in.sign_out(request)
    return redirect("sign-in")
