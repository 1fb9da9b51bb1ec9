"""The environment variables of tracing. Functions raise ImproperlyConfigured, with no part of a secret value."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal import env

_PATH = "/v1/traces"


def collector(name: str) -> str:
    """Return the address for traces of an OTLP/HTTP collector, with its path; empty when the variable is."""
    url = os.environ.get(name, "").strip().rstrip("/")
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.query or parts.fragment:
        raise ImproperlyConfigured(
            f"{name} is no address of a collector; write http://HOST:4318. Write a password to REGATTA_OTLP_HEADERS."
        )
    return url if parts.path.endswith(_PATH) else url + _PATH


def headers(name: str) -> dict[str, str]:
    """Return headers from ``name=value,name=value``. Values are encoded as in URLs."""
    found = {}
    for item in filter(None, (part.strip() for part in os.environ.get(name, "").split(","))):
        header, equals, value = item.partition("=")
        if not equals or not header.strip().replace("-", "").isalnum() or not unquote(value).isprintable():
            raise ImproperlyConfigured(
                f"{name} cannot be read; write NAME=VALUE,NAME=VALUE, with values encoded as in URLs, for example "
                "Authorization=Bearer%20TOKEN."
            )
        found[header.strip()] = unquote(value.strip())
    return found


def ratio(name: str, default: float) -> float:
    """Return a number from 0 to 1."""
    value = env.number(name, default)
    if value > 1:
        raise ImproperlyConfigured(f"{name} is {value:g}; write a number from 0 (none) to 1 (all).")
    return value
