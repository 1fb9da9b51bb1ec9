"""Headers that pass between a client and the server of a notebook. Pure.

To the server goes nothing that could be a credential of the portal. From it come only headers on a list: the rest could
change how a browser treats the origin, such as cookies, policies, or the address of another server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

Header = tuple[bytes, bytes]
Headers = list[Header]

PERSON = b"x-regatta-person"
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"http2-settings"}
)
# The origin was checked here; a referrer or a cookie could hold a secret.
_WITHHELD = frozenset({b"host", b"cookie", b"authorization", b"origin", b"referer", b"forwarded", b"via", b"x-real-ip"})
_WITHHELD_PREFIXES = (b"x-forwarded-", b"x-regatta-", b"proxy-", b"sec-")
# The pages of the portal's origin never run code of the server.
SANDBOX = "default-src 'none'; sandbox"
_BREAKS = re.compile(rb"[\r\n\0]")
_PASSED_BACK = frozenset(
    {
        *(b"accept-ranges", b"age", b"allow", b"content-disposition", b"content-encoding", b"content-language"),
        *(b"content-length", b"content-range", b"content-type", b"date", b"etag", b"expires", b"last-modified"),
        *(b"retry-after", b"vary", b"warning"),
    }
)


def to_server(given: Iterable[Header], host: str, person: str) -> Headers:
    """Return the headers of the request to the server, with its host and the name of the person."""
    received = [(name.lower(), value) for name, value in given]
    named = {token.strip().lower() for name, value in received if name == b"connection" for token in value.split(b",")}
    kept = [
        (name, value)
        for name, value in received
        if name not in _HOP_BY_HOP | _WITHHELD | named
        and not name.startswith(_WITHHELD_PREFIXES)
        and b"_" not in name  # a server may take it for the name with a hyphen
        and not _BREAKS.search(value)
    ]
    return [(b"host", host.encode()), *kept, (PERSON, quote(person).encode())]


def from_server(given: Iterable[Header], policy: str) -> Headers:
    """Return the headers of the response to the client. ``policy``: its content security policy."""
    received = list(given)
    kept = [(name, value) for name, value in received if name in _PASSED_BACK]
    return [*kept, (b"cache-control", _cache_control(received)), *protection(policy)]


def protection(policy: str) -> Headers:
    """Return the security headers of every response."""
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"x-frame-options", b"SAMEORIGIN"),
    ]


def content_security_policy(host: str) -> str:
    """Return the policy of pages of a notebook: everything from its own origin, and nothing from any other.

    ``host``: as in the Host header. Outputs of cells hold scripts and styles, so both may be inline.
    """
    sources = "'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
    return "; ".join(
        (
            f"default-src {sources}",
            f"connect-src 'self' ws://{host} wss://{host} data: blob:",
            "form-action 'self'",
            "base-uri 'self'",
            "frame-ancestors 'self'",
        )
    )


def _cache_control(received: Headers) -> bytes:
    """Return a value with which only the browser keeps the response, and by default not even that."""
    values = b",".join(value for name, value in received if name == b"cache-control")
    kept = [each.strip().lower() for each in values.split(b",")]
    allowed = [each for each in kept if each in _CACHE_WORDS or each.startswith(b"max-age=")]
    return b", ".join((b"private", *allowed)) if allowed else b"no-store"


_CACHE_WORDS = frozenset({b"no-cache", b"no-store", b"must-revalidate", b"immutable"})


def values_of(headers: Iterable[Header], name: bytes) -> Iterator[str]:
    """Yield the values of a header."""
    for each, value in headers:
        if each.lower() == name:
            yield value.decode("latin-1")


def value_of(headers: Iterable[Header], name: bytes) -> str:
    """Return the first value of a header; an empty text without one."""
    return next(values_of(headers, name), "")
