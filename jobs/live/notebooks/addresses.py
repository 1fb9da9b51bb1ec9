"""Paths and redirects that stay below the base URL of a notebook. Pure.

The path of a request goes to the server as the client has sent it. So a path is refused whose meaning could change when
it is decoded or normalised.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit
from uuid import UUID

_BASE = re.compile(
    r"(?P<base>/n/(?P<namespace>[A-Za-z0-9._-]{1,100})/notebooks/"
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/)(?P<rest>.*)"
)
_LONGEST = 8 * 1024
_UNUSUAL = re.compile(rb"[\x00-\x1f\x7f\\]")
_TOKEN = "token"  # noqa: S105  the name of a parameter


class Address:
    """The address of a request. ``rest``: the path below ``base``, as it was sent."""

    def __init__(self, base: str, namespace: str, notebook: UUID, rest: str) -> None:
        self.base, self.namespace, self.notebook, self.rest = base, namespace, notebook, rest


def address_of(raw_path: bytes) -> Address | None:
    """Return the address of a path below the base URL of a notebook; None for any other, and for an ambiguous one."""
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError:
        return None
    found = _BASE.fullmatch(path) if len(path) <= _LONGEST else None
    if found is None or not _is_plain(found["rest"]):
        return None
    return Address(found["base"], found["namespace"], UUID(found["id"]), found["rest"])


def _is_plain(rest: str) -> bool:
    """Return whether the path has no segment that leads elsewhere, also when it is decoded more than once."""
    decoded = rest.encode()
    if rest.startswith("/") or "//" in rest:
        return False
    for _ in range(3):
        if _UNUSUAL.search(decoded) or {b".", b".."} & set(decoded.split(b"/")):
            return False
        again = unquote_to_bytes(decoded)
        if again == decoded:
            return True
        decoded = again
    return False


def without_token(query: bytes) -> tuple[bytes, str]:
    """Return the query without the parameter ``token``, and its value: it must not reach code of users."""
    text = query.decode("latin-1")
    if _TOKEN not in unquote_to_bytes(query).decode("latin-1").lower():
        return query, ""
    fields = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
    kept = [(name, value) for name, value in fields if name.lower() != _TOKEN]
    token = next((value for name, value in fields if name == _TOKEN), "")
    return urlencode(kept, encoding="latin-1").encode("ascii"), token


def location_within(location: str, base: str, host: str) -> str | None:
    """Return the path of a redirect below ``base``; None if it leads elsewhere.

    ``host``: the Host header of the request. A relative reference is refused too: no server of notebooks sends one.
    """
    if not location.isascii() or not location.isprintable() or "\\" in location:
        return None
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if (parts.scheme or parts.netloc) and (parts.scheme not in ("", "http", "https") or parts.netloc.lower() != host):
        return None
    found = address_of(parts.path.encode())
    if found is None or found.base != base:
        return None
    query, fragment = f"?{parts.query}" if parts.query else "", f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.path}{query}{fragment}"
