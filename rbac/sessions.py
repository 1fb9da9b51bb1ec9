"""The sessions of browsers: Django's rows, with whose they are, from where, and when they were last seen.

``settings.SESSION_ENGINE`` names this module.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from portal.common.time import now
from rbac.models import Session

# What a session remembers of how it began (``rbac.signing_in.begin_session`` writes it).
ORIGIN = "origin"
_HANDLE_DIGITS = 32


class SessionStore(DatabaseStore):
    """As the database's own store, but each row says whose it is, so that people can see and end theirs."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return _described(cast(Session, super().create_model_instance(data)), data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return _described(cast(Session, await super().acreate_model_instance(data)), data)


def _described(row: Session, data: dict[str, Any]) -> Session:
    """The row, saying whose it is and from where it began."""
    origin = data.get(ORIGIN, {})
    row.seen = now()
    row.created = datetime.fromisoformat(origin["created"]) if "created" in origin else row.seen
    row.handle = handle_of(row.session_key)
    row.user_id = data.get(SESSION_KEY)
    row.address = origin.get("address")
    row.agent = origin.get("agent", "")
    return row


def handle_of(session_key: str | None) -> str:
    """The name of a session: from it nobody can find the key."""
    return hashlib.sha256((session_key or "").encode()).hexdigest()[:_HANDLE_DIGITS]
