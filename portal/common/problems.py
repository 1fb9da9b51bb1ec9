"""Common parts of HTTP responses: problem documents, security headers, error pages.

Below ``/api`` and ``/ingest`` every error is ``application/problem+json`` (RFC 9457)::

    {"type": "urn:regatta:problem:quota_exceeded", "title": "Quota exceeded", "status": 409,
     "code": "quota_exceeded", "detail": "<a message that says what to do>", "errors": {"field": ["message"]}, ...}

``errors`` is present for refused input only; other data of an error (positions, numbers) are further members.
Everywhere else an error is a page.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig
from django.db import DataError, connections
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import translation
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.views import set_rollback

from portal.common import outages
from portal.common.errors import NotFound, NotSignedIn, RegattaError, TooLarge, TooManyRequests, ValidationFailed
from portal.common.messages import localized, localized_errors
from portal.common.messages import requests as messages
from portal.common.monitoring import log_context, request_ids
from portal.common.version import OLDEST_CLIENT, VERSION

PROBLEM_TYPE = "application/problem+json"
_MACHINE_PREFIXES = ("/api/", "/ingest/", "/mlflow/")
_LONGEST_HOST = 100
_UNAVAILABLE = 503
# The versions that a client compares with its own release.
_RELEASE: Mapping[str, str] = {"Regatta-Version": VERSION, "Regatta-Oldest-Client": OLDEST_CLIENT}
_log = logging.getLogger(__name__)
_NOT_STORABLE = messages.REQUEST_NOT_STORABLE()
_STALE = _("This page was open for too long, or you signed in again in another tab. Go back, reload, and try again.")
# The REST framework has no error class for this.
_CSRF_FAILED = "CSRF Failed"
_TOO_LARGE = messages.REQUEST_TOO_LARGE()

# The stable code of each of the framework's own errors; for others the framework's code is used.
_CODES: Mapping[type[drf.APIException], str] = {
    drf.NotAuthenticated: "not_signed_in",
    drf.AuthenticationFailed: "not_signed_in",
    drf.PermissionDenied: "forbidden",
    drf.NotFound: "not_found",
    drf.ParseError: "malformed",
    drf.MethodNotAllowed: "method_not_allowed",
    drf.Throttled: "throttled",
}


def expects_problem(request: HttpRequest) -> bool:
    """Return whether the caller is a program: errors are then documents, not pages."""
    return request.path.startswith(_MACHINE_PREFIXES)


def problem(code: str, status: int, detail: str, **extra: Any) -> dict[str, Any]:
    """Return the body of a problem document, its messages in the reader's language, with the id of the request."""
    title = code.replace("_", " ").capitalize()
    log_context.note(refusal=code)
    if request_id := log_context.current().request_id:
        extra.setdefault("request_id", request_id)
    return {
        "type": f"urn:regatta:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": localized(detail),
        **extra,
    }


def problem_of(error: RegattaError) -> dict[str, Any]:
    """Return the problem document of one of the platform's own errors."""
    errors = {"errors": localized_errors(error.errors)} if isinstance(error, ValidationFailed) else {}
    return problem(error.code, error.status, error.detail, **errors, **error.extra)


def problem_response(body: Mapping[str, Any]) -> JsonResponse:
    """Return a problem document as the response of a plain Django view."""
    return JsonResponse(dict(body), status=body["status"], content_type=PROBLEM_TYPE, headers=headers_of(body))


def problem_from_exception(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Exception handler for the REST framework. Returns None for an internal error, which becomes a 500."""
    body = _body_of(error)
    if body is None:
        return None
    set_rollback()
    headers = headers_of(body) | dict(_challenge_of(error))
    return Response(body, status=body["status"], content_type=PROBLEM_TYPE, headers=headers)


def _body_of(error: Exception) -> dict[str, Any] | None:
    if isinstance(error, RegattaError):
        return problem_of(error)
    if isinstance(error, Http404):
        return problem_of(NotFound(messages.ADDRESS_NOT_FOUND()))
    if isinstance(error, RequestDataTooBig):
        return problem_of(TooLarge(_TOO_LARGE))
    if isinstance(error, DataError):
        return problem("malformed", 400, _NOT_STORABLE)
    if (away := outages.unavailable(error)) is not None:
        return problem_of(away)
    if isinstance(error, PermissionDenied):
        return problem("forbidden", 403, messages.ACTION_NOT_ALLOWED())
    if isinstance(error, drf.ValidationError):
        return problem_of(ValidationFailed(dict(_fields("", error.detail))))
    if isinstance(error, drf.Throttled):
        return problem_of(TooManyRequests(messages.TOO_MANY_REQUESTS(), retry_after=getattr(error, "wait", None) or 1))
    if isinstance(error, drf.PermissionDenied) and str(error.detail).startswith(_CSRF_FAILED):
        return problem("stale_form", 403, gettext(_STALE), reason=str(error.detail))
    if isinstance(error, drf.APIException):
        code = _CODES.get(type(error), error.default_code)
        return problem(code, error.status_code, str(error.detail))
    return None


def _fields(path: str, detail: Any) -> Iterator[tuple[str, list[str]]]:
    """Flatten the framework's nested errors to ``a.b.0.c`` -> messages."""
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            yield from _fields(f"{path}.{key}" if path else str(key), inner)
    elif detail and all(isinstance(item, Mapping | list) for item in detail):
        for index, inner in enumerate(detail):
            yield from _fields(f"{path}.{index}" if path else str(index), inner)
    else:
        yield path or "body", [str(item) for item in detail]


def headers_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a response with this problem: ``Retry-After``."""
    return {"Retry-After": str(max(1, round(body["retry_after"])))} if "retry_after" in body else {}


def _challenge_of(error: Exception) -> Iterator[tuple[str, str]]:
    if challenge := getattr(error, "auth_header", None):
        yield "WWW-Authenticate", challenge


# --- Error pages, named in portal/urls.py ----------------------------------------------------------------------------
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        return _unknown_host(request)
    if isinstance(exception, RequestDataTooBig):
        return answer_to(request, TooLarge(_TOO_LARGE))
    return refuse(request, "bad_request", 400, gettext("The request could not be read."))


def _unknown_host(request: HttpRequest) -> HttpResponse:
    """Django either checks the syntax of the name or leaves it out; the page shows it as text."""
    host = request.META.get("HTTP_HOST", "").rpartition(":")[0] or request.META.get("HTTP_HOST", "")
    # The request is refused before the middleware that chooses the language.
    with translation.override(translation.get_language_from_request(request)):
        detail = gettext(
            "The portal is not known under the name {host}. Use its usual address. If this is to be one, its operator "
            "adds the name to REGATTA_ALLOWED_HOSTS and starts the portal again."
        )
        return refuse(request, "unknown_host", 400, detail.format(host=repr(host[:_LONGEST_HOST])))


def refuse(request: HttpRequest, code: str, status: int, detail: str) -> HttpResponse:
    """Return a problem document or a page, according to the caller."""
    return _answer(request, problem(code, status, detail))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    with _own_connection():
        return refuse(request, "forbidden", 403, gettext("Your account may not do this."))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    with _own_connection():
        detail = gettext("There is nothing here that you may see. Check the address.")
        return refuse(request, "not_found", 404, detail)


@contextmanager
def _own_connection() -> Iterator[None]:
    """Close the connection that this thread may hold, before and after the page. Behind an event loop, Django calls
    these handlers in a thread that no signal of a request cleans up: the page would meet a connection that was lost
    long ago, and would keep one of the pool."""
    _close_connections()
    try:
        yield
    finally:
        _close_connections()


def _close_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def server_error(request: HttpRequest) -> HttpResponse:
    """Also answers errors of middleware, such as while it reads the session: ``process_exception`` does not see
    those."""
    with _own_connection():
        return _answer_error(request)


def _answer_error(request: HttpRequest) -> HttpResponse:
    if (away := outages.unavailable(sys.exception())) is not None:
        return _answer_outage(request, away)
    detail = gettext(
        "Something went wrong on our side. Try again; if it stays, tell the operator the request's number."
    )
    return _answer_safely(request, problem("server_error", 500, detail))


def _answer_outage(request: HttpRequest, away: RegattaError) -> HttpResponse:
    response = _answer_safely(request, problem_of(away))
    # ``outages`` has logged the cause in one line; Django's own entry would add a traceback to every request.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _answer_safely(request: HttpRequest, body: Mapping[str, Any]) -> HttpResponse:
    """The cause of the error (the database, for example) may break the error page too: then return a line of text."""
    try:
        return _answer(request, body)
    except Exception:  # noqa: BLE001  whatever it is, the error that is being answered counts
        _log.exception("The page of an error could not be made.")
        number = getattr(request, "request_id", "")
        content_type = "text/plain; charset=utf-8"
        return HttpResponse(
            f"{body['detail']} ({number})", status=body["status"], content_type=content_type, headers=headers_of(body)
        )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without a valid token, most likely from an old tab. The page carries a fresh token and a link."""
    return _answer(request, problem("stale_form", 403, gettext(_STALE), reason=reason, back=_way_back(request)))


def _way_back(request: HttpRequest) -> str:
    """Return the path of the page with the form, if it is one of the portal's. Only the path is used: a page of another
    site cannot be put here."""
    return request.get_full_path() if not request.path.startswith("//") else "/"


def _answer(request: HttpRequest, body: Mapping[str, Any]) -> HttpResponse:
    if expects_problem(request):
        return problem_response(body)
    status: int = body["status"]
    page = status if status in (400, 403, 404, 500, 503) else 400
    shown = _without_account(request) if page == _UNAVAILABLE else request
    response = render(shown, f"{page}.html", {"problem": body}, status=status)
    for name, value in headers_of(body).items():
        response.headers[name] = value
    return response


def _without_account(request: HttpRequest) -> HttpRequest:
    """Return the request for a page that reads nothing from the database: without account, session and namespaces. The
    request itself is left alone, so that its session stays."""
    shown = copy(request)
    shown.user = AnonymousUser()
    shown.session = {}  # type: ignore[assignment]
    shown.impersonator = None  # type: ignore[attr-defined]
    shown._messages = []  # type: ignore[attr-defined]
    return shown


def answer_to(request: HttpRequest, error: RegattaError) -> HttpResponse:
    """Return one of the platform's own errors as a document, as a page, or as a redirect to the sign-in page."""
    if isinstance(error, NotSignedIn) and not expects_problem(request):
        return redirect_to_login(request.get_full_path())
    return _answer(request, problem_of(error))


# --- Security headers ------------------------------------------------------------------------------------------------
def content_security_policy(nonce: str, host: str) -> str:
    """Return the policy of a page. ``host`` as in the Host header: older browsers do not count sockets among 'self'."""
    sockets = f" ws://{host} wss://{host}" if host else ""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            f"style-src 'self' 'nonce-{nonce}'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            f"connect-src 'self'{sockets}",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        )
    )


class SecurityHeadersMiddleware:
    """Sets an id and a nonce on each request and security headers on each response; turns errors into their
    responses."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.csp_nonce = secrets.token_urlsafe(16)  # type: ignore[attr-defined]
        request.request_id = _request_id(request)  # type: ignore[attr-defined]
        _drop_last_slash(request)
        with _named(request):
            response = _refusal(request) or _explained(request, self._get_response(request))
        for name, value in self._headers(request).items():
            response.headers.setdefault(name, value)
        if not response.has_header("Cache-Control"):
            # A response that is not declared public is private: a shared computer or proxy must not show it to another
            # person.
            add_never_cache_headers(response)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer errors that plain Django views raise; those of the REST framework do not arrive here."""
        if isinstance(error, DataError):
            return _answer(request, problem("malformed", 400, _NOT_STORABLE))
        if isinstance(error, RegattaError):
            return answer_to(request, error)
        away = outages.unavailable(error)
        return _answer_outage(request, away) if away is not None else None

    def _headers(self, request: HttpRequest) -> dict[str, str]:
        return {
            **(_RELEASE if expects_problem(request) else {}),
            "Content-Security-Policy": content_security_policy(request.csp_nonce, _host(request)),  # type: ignore[attr-defined]
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Request-ID": request.request_id,  # type: ignore[attr-defined]
        }


def _drop_last_slash(request: HttpRequest) -> None:
    """Routes for programs are written without a slash at their end and accept one too; a redirect would lose a POST."""
    if expects_problem(request) and request.path_info.endswith("/"):
        request.path_info = request.path_info.rstrip("/")
        request.path = request.path.rstrip("/")


def _refusal(request: HttpRequest) -> HttpResponse | None:
    """Refuse a body in chunks without a length: the REST framework would take it for an empty one."""
    if request.path.startswith("/api/") and "Transfer-Encoding" in request.headers:
        return problem_response(problem("length_required", 411, messages.LENGTH_REQUIRED()))
    return None


def _explained(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Show a page instead of an empty window for a GET of an address that only a form leads to. Most often the session
    ended before the form was sent, and the person has just signed in again."""
    if response.status_code != 405 or request.method != "GET" or expects_problem(request):
        return response
    detail = gettext(
        "Nothing was changed: this address only takes forms. Go to the page of the form and send it again."
    )
    return refuse(request, "method_not_allowed", 405, detail)


def _request_id(request: HttpRequest) -> str:
    """Return the id that ``portal.http.access`` chose; choose one without that middleware, as in tests."""
    if not _is_unwatched():
        return log_context.current().request_id
    peer, given = request.META.get("REMOTE_ADDR", ""), request.headers.get(request_ids.HEADER, "")
    return request_ids.choose(peer, given, settings.TRUSTED_PROXIES)


def _named(request: HttpRequest) -> AbstractContextManager[object]:
    """Name the request in log lines, unless ``portal.http.access`` has."""
    return log_context.use(request_id=request.request_id) if _is_unwatched() else nullcontext()  # type: ignore[attr-defined]


def _is_unwatched() -> bool:
    return not log_context.current().request_id


def _host(request: HttpRequest) -> str:
    """Return the requested host; empty when it is not one of the portal's (the answer is then an error anyway)."""
    try:
        return request.get_host()
    except DisallowedHost:
        return ""
