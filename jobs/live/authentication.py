"""Authentication of a websocket, by a browser's session or a program's personal token, and its language."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.http.request import HttpRequest, split_domain_port, validate_host
from django.utils.translation import get_language_from_request

from portal.common.clock import now
from rbac.models import User
from rbac.selectors import token_behind
from rbac.sign_in.impersonation import IMPERSONATOR


@dataclass(frozen=True)
class Credentials:
    """Credentials that a socket was opened with. One of the two is empty."""

    token: str
    session: str

    def user(self) -> User | None:
        """Return the active account of the credentials. Reads the database on each call."""
        if self.token:
            found = token_behind(self.token, now())
            return found.user if found else None
        if not self.session:
            return None
        request: Any = SimpleNamespace(session=self._store())
        user = get_user(request)
        return user if isinstance(user, User) and user.is_active else None

    def is_impersonated(self) -> bool:
        """Return whether an admin sees the portal as another account: nothing may be changed then."""
        return bool(self.session) and IMPERSONATOR in self._store()

    def _store(self) -> SessionBase:
        store: SessionBase = import_module(settings.SESSION_ENGINE).SessionStore(self.session)
        return store


def credentials(scope: dict[str, Any]) -> Credentials:
    """Return the credentials of the handshake. An Authorization header takes precedence over the session's cookie."""
    kind, _, token = _header(scope, b"authorization").partition(" ")
    if kind.lower() == "bearer":
        return Credentials(token=token.strip(), session="")
    return Credentials(token="", session=scope.get("cookies", {}).get(settings.SESSION_COOKIE_NAME, ""))


def same_origin(scope: dict[str, Any]) -> bool:
    """Return whether a page of the portal opened the socket.

    Browsers send the session's cookie for pages of any origin, and no CSRF token, so the origin protects a socket. A
    program with a token needs no origin, because no browser adds the Authorization header on its own.
    """
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    domain, _ = split_domain_port(host)
    return urlsplit(origin).netloc == host and validate_host(domain, settings.ALLOWED_HOSTS)


def language(scope: dict[str, Any]) -> str:
    """Return the language of the socket, chosen as for a page: that of the cookie, else that of the browser."""
    request = HttpRequest()
    request.COOKIES = scope.get("cookies", {})
    request.META["HTTP_ACCEPT_LANGUAGE"] = _header(scope, b"accept-language")
    return get_language_from_request(request)


def _header(scope: dict[str, Any], name: bytes) -> str:
    values = [value for key, value in scope["headers"] if key.lower() == name]
    return values[0].decode("latin-1") if values else ""
