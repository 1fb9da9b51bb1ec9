"""Callers of the proxy: a browser with the cookie of a notebook's origin, or a program with a personal token.

Each request is authorised by itself, against the database. Open websockets are checked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from jobs.live.notebooks.headers import Headers, value_of, values_of
from jobs.messages import notebooks as messages
from jobs.notebooks import access, origin, sessions
from jobs.notebooks.access import Target
from portal.common.clock import now
from portal.common.errors import NotSignedIn
from rbac.models import User
from rbac.selectors import token_behind

_KINDS = frozenset({"bearer", "token"})


@dataclass(frozen=True)
class Caller:
    """What a request presents: a cookie or a token. ``namespace`` and ``notebook`` are those of its address."""

    namespace: str
    notebook: UUID
    cookie: str = ""
    token: str = ""

    def admitted(self) -> tuple[User, Target]:
        """Return the account, and the running notebook. Reads the database.

        Raises NotSignedIn, NotFound, Forbidden, and Conflict if the notebook does not run.
        """
        user = self._user()
        if user is None:
            why = messages.NOTEBOOK_SESSION_ENDED if self.cookie else messages.NOTEBOOK_TOKEN_REQUIRED
            raise NotSignedIn(why())
        return user, access.target_for(user, self.namespace, self.notebook)

    def _user(self) -> User | None:
        if self.token:
            found = token_behind(self.token, now())
            return found.user if found else None
        return sessions.person_of(self.cookie, self.notebook)


def cookie_of(headers: Headers) -> str:
    """Return the cookie of the notebook's origin; empty without one.

    Pages of the notebook can set other cookies, but cannot see or replace this one.
    """
    name = origin.cookie_name()
    for header in values_of(headers, b"cookie"):
        for part in header.split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                return value
    return ""


def token_of(headers: Headers, in_query: str) -> str:
    """Return the personal token of a request, from its header or else its query."""
    kind, _, token = value_of(headers, b"authorization").partition(" ")
    return token.strip() if kind.lower() in _KINDS else in_query
