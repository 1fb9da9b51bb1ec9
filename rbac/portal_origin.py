"""Scheme and host of the portal's addresses, for the links in e-mails."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port


def origin_of(request: HttpRequest) -> str:
    """Return scheme and host of the portal's addresses.

    The host is that of the request, which Django has checked against the portal's own. Django does not check the port:
    another port could belong to a program that somebody runs on the same machine.
    """
    host, port = split_domain_port(request.get_host())
    if port not in _ports_of(host):
        port = "" if settings.HTTPS else str(settings.PORT)
    return f"{request.scheme}://{host}{':' if port else ''}{port}"


def _ports_of(host: str) -> set[str]:
    """Return the ports of the portal's own addresses with this host name."""
    origins = [urlsplit(origin) for origin in settings.CSRF_TRUSTED_ORIGINS]
    return {"", "80", "443", str(settings.PORT), *(str(each.port) for each in origins if each.hostname == host)}
