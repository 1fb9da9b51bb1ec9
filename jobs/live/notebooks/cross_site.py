"""Requests that pages of other sites have caused. Pure.

A browser sends the cookie of a notebook's origin also with some requests that another site causes. It names the page's
origin in each request that may change something, and in each websocket.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.live.notebooks.headers import Header, value_of

SAFE = frozenset({"GET", "HEAD"})


def is_foreign(method: str, headers: Sequence[Header], own: str) -> bool:
    """Return whether the request may come from a page of another origin than ``own``. ``method``: "" for a websocket.

    Permitted from elsewhere is only that a person follows a link to a page of the notebook.
    """
    if value_of(headers, b"service-worker"):
        return True  # a script that would answer requests of the origin after the page is closed
    origin, site = value_of(headers, b"origin"), value_of(headers, b"sec-fetch-site")
    if origin:
        return origin != own
    if method not in SAFE:
        return site != "same-origin"
    return site not in ("", "none", "same-origin") and not is_navigation(method, headers)


def is_navigation(method: str, headers: Sequence[Header]) -> bool:
    """Return whether the browser opens a page, as opposed to a request of a script or a part of a page."""
    mode, kind = value_of(headers, b"sec-fetch-mode"), value_of(headers, b"sec-fetch-dest")
    if mode or kind:
        return method == "GET" and mode == "navigate" and kind == "document"
    return method == "GET" and "text/html" in value_of(headers, b"accept")
