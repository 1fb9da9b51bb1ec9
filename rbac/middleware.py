"""What happens around every request of a browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse

from portal.common.time import now

_SEEN = "seen"
# Between two writes of when a session was last seen: reading pages must not cost a write each.
_GRAIN = timedelta(minutes=10)


class SeenMiddleware:
    """Notes now and then that a session is in use; saving the session says so in its row."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        session = request.session
        if session.accessed and SESSION_KEY in session and _is_stale(session.get(_SEEN), now()):
            session[_SEEN] = now().isoformat()
        return response


def _is_stale(seen: str | None, at: datetime) -> bool:
    return seen is None or datetime.fromisoformat(seen) < at - _GRAIN
