"""Sessions of browsers with notebooks: a ticket of the portal is exchanged, once, for a cookie of the other origin.

A session belongs to a person, a notebook and the portal's session from which the notebook was opened. It ends with that
one: at sign-out, with a change of the password, and when the account is disabled.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs.models import Notebook, NotebookSession
from portal.common.clock import now
from rbac.audit import log as audit_log
from rbac.audit.context import AuditContext
from rbac.models import User
from rbac.sign_in.impersonation import IMPERSONATOR
from rbac.sign_in.sessions import account_of, content_of

TICKET_SECONDS = 30
# The page that exchanges a ticket, below the base URL of the notebook on its origin.
OPEN = "regatta/open"
_BYTES = 32
_LONGEST = 100  # characters of a ticket or cookie
_CLEAN_EVERY = timedelta(hours=1)


@dataclass(frozen=True)
class Opened:
    """An opened session: the value of its cookie, and the portal's origin."""

    secret: str
    portal: str


def issue(*, actor: User, notebook_id: UUID, session: str, portal: str) -> str:
    """Return a ticket for the notebook, valid once and for TICKET_SECONDS. The caller has authorised the actor.

    ``session``: the public name of the portal's session. ``portal``: scheme and host of the portal.
    """
    ticket = secrets.token_urlsafe(_BYTES)
    NotebookSession.objects.create(
        notebook_id=notebook_id, user=actor, session=session, digest=_digest(ticket), portal=portal[:300], created=now()
    )
    return ticket


def redeem(ticket: str, notebook_id: UUID, context: AuditContext) -> Opened | None:
    """Exchange a ticket; None if it is of another notebook, too old, used, or of a person who is signed out since."""
    moment, secret = now(), secrets.token_urlsafe(_BYTES)
    fresh = NotebookSession.objects.filter(
        notebook=notebook_id,
        digest=_digest(ticket[:_LONGEST]),
        opened=None,
        created__gt=moment - timedelta(seconds=TICKET_SECONDS),
    )
    with transaction.atomic():
        row = fresh.select_related("user").first()
        if row is None or _person(row) is None or not fresh.update(digest=_digest(secret), opened=moment):
            return None
        notebook = Notebook.objects.select_related("namespace").get(pk=notebook_id)
        audit_log.record(
            "notebook.open",
            str(notebook_id),
            actor=row.user,
            namespace=notebook.namespace,
            detail={"notebook": notebook.name},
            context=context,
        )
    return Opened(secret, row.portal)


def person_of(secret: str, notebook_id: UUID) -> User | None:
    """Return the account behind the cookie of a notebook's origin; None once the session has ended."""
    row = _of_cookie(secret, notebook_id)
    return _person(row) if row is not None and row.created > now() - _lifetime() else None


def portal_of(secret: str, notebook_id: UUID) -> str:
    """Return the origin of the portal from which the session was opened, even if it has ended; empty if unknown."""
    row = _of_cookie(secret, notebook_id)
    return row.portal if row is not None else ""


class SessionCleanup:
    """Removes sessions that have ended, once an hour."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, moment: datetime) -> None:
        if self._next is None or moment >= self._next:
            self._next = moment + _CLEAN_EVERY
            NotebookSession.objects.filter(created__lt=moment - _lifetime()).delete()
            tickets = NotebookSession.objects.filter(opened=None)
            tickets.filter(created__lt=moment - timedelta(seconds=TICKET_SECONDS)).delete()


def _of_cookie(secret: str, notebook_id: UUID) -> NotebookSession | None:
    rows = NotebookSession.objects.filter(notebook=notebook_id, digest=_digest(secret[:_LONGEST]))
    return rows.exclude(opened=None).first() if secret else None


def _person(row: NotebookSession) -> User | None:
    """Return the account of the session, if it is still the one that is signed in at the portal, as itself."""
    content = content_of(row.session)
    if content is None or IMPERSONATOR in content:
        return None
    user = account_of(content)
    return user if user is not None and user.pk == row.user_id else None


def _lifetime() -> timedelta:
    return timedelta(seconds=settings.SESSION_COOKIE_AGE)


def _digest(secret: str) -> str:
    """Return the digest under which a secret is stored. It has 256 random bits, so a plain SHA-256 resists a search."""
    return hashlib.sha256(secret.encode()).hexdigest()
