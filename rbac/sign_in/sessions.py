"""Sessions of browsers: Django's rows, with account, address, and the time when they were last seen.

The table holds the SHA-256 of each key: a copy of the database signs nobody in. ``settings.SESSION_ENGINE`` names this
module.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from django.contrib.auth import SESSION_KEY, get_user
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from portal.common.clock import now
from rbac.models import Session, User

# Session keys about its beginning (``rbac.sign_in.sign_in.begin_session`` sets them).
ORIGIN = "origin"
_HANDLE_DIGITS = 32


class SessionStore(DatabaseStore):
    """The database's own store, except that rows are found by the digest of their key and hold the account, so that
    people can list and end their sessions."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    # Each of these has an ``a...`` twin in the store. All are overridden, or some method would search for the key
    # itself.
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
    """Set the digest of the key, the handle, the account and the beginning of the session on its row."""
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
    """Return the digest under which a key is stored. A key has 165 random bits, so a plain SHA-256 of it cannot be
    searched."""
    return hashlib.sha256((session_key or "").encode()).hexdigest()


def handle_of(session_key: str | None) -> str:
    """Return the public name of a session: the key cannot be derived from it."""
    return _digest_of(session_key)[:_HANDLE_DIGITS]


def is_signed_in(session_key: str) -> bool:
    """Return whether this is the key of a signed-in session. Reads the database."""
    row = Session.objects.filter(session_key=_digest_of(session_key), expire_date__gt=now(), user__is_active=True)
    return row.exists()


class _Content(dict[str, Any]):
    """The content of a session that is only read: Django may end or renew a session when it looks up the account."""

    def flush(self) -> None:
        self.clear()

    def cycle_key(self) -> None:
        pass


def content_of(handle: str) -> dict[str, Any] | None:
    """Return the content of the session with this public name; None if it has ended. Reads the database."""
    row = Session.objects.filter(handle=handle, expire_date__gt=now()).first()
    return SessionStore().decode(row.session_data) if row is not None else None


def account_of(content: dict[str, Any]) -> User | None:
    """Return the active account that is signed in, with its present password, in a session of this content."""
    request: Any = SimpleNamespace(session=_Content(content))
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None
