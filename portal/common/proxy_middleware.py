"""Client address and encryption of a request behind proxies. Comes before all code that reads them.

A header of an untrusted proxy is removed from the request, so that no later code sees it. With a trusted one
(``portal.common.trusted_proxies``) the caller's address becomes ``REMOTE_ADDR``.

When the portal is reached over HTTPS only, Django redirects an unencrypted request to the same address with HTTPS. If
the proxy in front does not report that the client used HTTPS, or is not trusted, the redirects would never end: after
three of them a page says what to set.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import gettext

from portal.common import trusted_proxies
from portal.common.problems import refuse

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
# No code reads these; a proxy may pass on values that a caller invented.
_UNUSED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PORT", "HTTP_X_REAL_IP")
MOST_ROUNDS = 3
_ROUNDS_COOKIE = "regatta-rounds"
_ROUNDS_SECONDS = 20


class TransportMiddleware:
    """Middleware that applies the rules of this module."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _believe_trusted(request)
        rounds = _rounds(request)
        if _has_to_change(request) and rounds >= MOST_ROUNDS:
            return _end_of_rounds(request)
        response = self._get_response(request)
        if _has_to_change(request) and response.status_code in (301, 302, 307, 308):
            # A browser that caches the redirect would follow it without a request, even once all is set right.
            response.headers["Cache-Control"] = "no-store"
            response.set_cookie(_ROUNDS_COOKIE, str(rounds + 1), max_age=_ROUNDS_SECONDS, httponly=True, samesite="Lax")
        return response


def _believe_trusted(request: HttpRequest) -> None:
    """Set the caller's address and remove all headers that no trusted proxy wrote."""
    meta, trusted = request.META, settings.TRUSTED_PROXIES
    peer = meta.get("REMOTE_ADDR", "")
    forwarded_for, forwarded_proto = (meta.pop(name, "") for name in FORWARDED)
    for name in _UNUSED:
        meta.pop(name, None)
    found = trusted_proxies.caller(peer, forwarded_for, trusted)
    meta["REMOTE_ADDR"] = str(found) if found is not None else peer
    if trusted_proxies.is_encrypted(peer, forwarded_proto, trusted):
        meta["HTTP_X_FORWARDED_PROTO"] = "https"


def _has_to_change(request: HttpRequest) -> bool:
    return bool(settings.SECURE_SSL_REDIRECT) and not request.is_secure()


def _rounds(request: HttpRequest) -> int:
    """Return how often this browser was redirected to HTTPS in the last seconds and came back without it."""
    raw = request.COOKIES.get(_ROUNDS_COOKIE, "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 3 else 0


def _end_of_rounds(request: HttpRequest) -> HttpResponse:
    # The middleware that chooses the language comes later.
    with translation.override(translation.get_language_from_request(request)):
        detail = gettext(
            "You were sent to the encrypted address several times, and each time the request arrived here as not "
            "encrypted. The operator has to name the proxy in REGATTA_TRUSTED_PROXIES, and to let it send "
            "X-Forwarded-Proto."
        )
        response = refuse(request, "not_encrypted", 400, detail)
    response.delete_cookie(_ROUNDS_COOKIE)
    return response
