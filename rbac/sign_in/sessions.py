"""The sessions of browsers: Django's rows, with whose they are, from where, and when they were last seen.

The table holds the SHA-256 of each key: a copy of the database signs nobody in. ``settings.SESSION_ENGINE`` names this
module.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from portal.common.clock import now
from rbac.models import Session

# What a session remembers of how it began (``rbac.sign_in.sign_in.begin_session`` writes it).
ORIGIN = "origin"
_HANDLE_DIGITS = 32


class SessionStore(DatabaseStore):
    """As the database's own store, but rows are found by the digest of their key, and say whose they are, so that
    people can see and end theirs."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    # Each of these has an ``a...`` twin in the store: all are here, or some way in would look for the key itself.
    def _get_session_from_db(self) -> Session | None:
        row = Session.objects.filter(session_key=_digest_of(self.session_key), expire_date__gt=now()).first()
        return self._found(row)

    async def _aget_session_from_db(self) -> Session | None:
        row = await Session.objects.filter(session_key=_digest_of(self.session_key), expire_date__gt=now()).afirst()
        return self._found(row)

    def _found(self, row: Session | None) -> Session | None:
        if row is None:
            self._session_key = None
        return row

    def exists(self, session_key: str) -> bool:
        return super().exists(_digest_of(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(_digest_of(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return _described(cast(Session, super().create_model_instance(data)), data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return _described(cast(Session, await super().acreate_model_instance(data)), data)

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(_digest_of(key))

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await super().adelete(_digest_of(key))


def _described(row: Session, data: dict[str, Any]) -> Session:
    """The row, saying whose it is and from where it began."""
    origin = data.get(ORIGIN, {})
    row.seen = now()
    row.created = datetime.fromisoformat(origin["created"]) if "created" in origin else row.seen
    row.handle = handle_of(row.session_key)
    row.session_key = _digest_of(row.session_key)
    row.user_id = data.get(SESSION_KEY)
    row.address = origin.get("address")
    row.agent = origin.get("agent", "")
    return row


def _digest_of(session_key: str | None) -> str:
    """What the table holds of a key, which has 165 random bits: a plain SHA-256 of it cannot be searched."""
    return hashlib.sha256((session_key or "").encode()).hexdigest()


def handle_of(session_key: str | None) -> str:
    """The name of a session: from it nobody can find the key."""
    return _digest_of(session_key)[:_HANDLE_DIGITS]


def is_signed_in(session_key: str) -> bool:
    """Whether this is the key of a session that somebody is signed in with. Reads the database."""
    row = Session.objects.filter(session_key=_digest_of(session_key), expire_date__gt=now(), user__is_active=True)
    return row.exists()
