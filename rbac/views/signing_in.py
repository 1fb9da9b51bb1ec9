"""Signing in and out."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from portal.common.errors import NotSignedIn, TooManyRequests
from rbac import signing_in


def _way_on(request: HttpRequest) -> str:
    """Where to go after sign-in: the wanted page if it is one of ours, else home."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if ours else resolve_url("home")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """The page that asks for name and password."""
    if request.user.is_authenticated:
        return redirect(_way_on(request))
    if request.method != "POST":
        return _ask(request)
    try:
        signing_in.sign_in(request, request.POST.get("username", ""), request.POST.get("password", ""))
    except NotSignedIn as error:
        return _ask(request, gettext("The name or the password is wrong."), error.status)
    except TooManyRequests as error:
        return _ask(request, gettext("Too many tries. Wait a few minutes, then try again."), error.status)
    return redirect(_way_on(request))


def _ask(request: HttpRequest, error: str = "", status: int = 200) -> HttpResponse:
    context = {"next": _way_on(request), "error": error, "username": request.POST.get("username", "")}
    return render(request, "rbac/sign_in.html", context, status=status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session. A form, not a link: no other site can sign somebody out."""
    signing_in.sign_out(request)
    return redirect("sign-in")
