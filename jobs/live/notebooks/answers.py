"""Responses of the proxy itself: a page for a person, a problem document for a program, or a redirect.

The page is plain: on the origin of a notebook nothing of the portal is available.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.utils.html import format_html
from django.utils.translation import get_language, gettext

from jobs.live.notebooks.headers import Headers, protection
from portal.common.errors import RegattaError
from portal.common.problems import PROBLEM_TYPE, headers_of, problem_of

Message = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; margin: 20vh auto; max-width: 36em; padding: 0 1em }}</style>
</head><body><p>{detail}</p><p><a href="{link}">{label}</a></p></body></html>
"""


class Answer:
    """A whole response."""

    def __init__(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status, self.body = status, body
        self.headers = [*headers, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]

    def messages(self, method: str) -> tuple[Message, Message]:
        """Return the messages of ASGI."""
        body = b"" if method == "HEAD" else self.body
        return (
            {"type": "http.response.start", "status": self.status, "headers": self.headers},
            {"type": "http.response.body", "body": body},
        )


class BadGateway(RegattaError):
    """The server of the notebook does not answer as it should."""

    code = "notebook_unreachable"
    status = HTTPStatus.BAD_GATEWAY


def problem_answer(error: RegattaError) -> Answer:
    """Return a problem document."""
    body = problem_of(error)
    extra = [(name.lower().encode(), value.encode()) for name, value in headers_of(body).items()]
    headers = [(b"content-type", PROBLEM_TYPE.encode()), *extra, *protection(_POLICY)]
    return Answer(error.status, headers, json.dumps(body, ensure_ascii=False).encode())


def page_answer(error: RegattaError, link: str) -> Answer:
    """Return a page with the message and a link to the notebooks of the namespace at the portal."""
    body = problem_of(error)
    page = format_html(
        _PAGE,
        language=get_language() or "en",
        title=body["title"],
        detail=body["detail"],
        link=link,
        label=gettext("Open the page Notebooks"),
    )
    return Answer(error.status, [(b"content-type", b"text/html; charset=utf-8"), *protection(_POLICY)], page.encode())


def redirect_answer(location: str, cookie: str = "") -> Answer:
    """Return a redirect, which sets the cookie if there is one."""
    headers = [(b"location", location.encode()), *protection(_POLICY)]
    if cookie:
        headers.append((b"set-cookie", cookie.encode()))
    return Answer(HTTPStatus.SEE_OTHER, headers)
