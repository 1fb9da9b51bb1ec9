"""Where a change comes from, for its row in the audit log: address, request id and impersonator.

Middleware sets the context once per HTTP request. Threads, Celery tasks and consumers of websockets have
``NO_REQUEST``, and so have management commands.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rbac.models import User


@dataclass(frozen=True, slots=True)
class AuditContext:
    """Origin of a change. ``address`` is None without a network address (a command, a unix socket); ``impersonator``
    is the admin who impersonates the actor."""

    address: str | None = None
    request_id: str = ""
    impersonator: User | None = None


NO_REQUEST = AuditContext()
_current: ContextVar[AuditContext] = ContextVar("audit_context", default=NO_REQUEST)


def current() -> AuditContext:
    """Return the context of the current HTTP request, or ``NO_REQUEST``."""
    return _current.get()


@contextmanager
def use(context: AuditContext) -> Iterator[None]:
    """Make this the current context of the block. Nested blocks restore the outer context."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def address_of(remote: str) -> str | None:
    """Return the address in its usual form; None for any other text."""
    try:
        return str(ipaddress.ip_address(remote))
    except ValueError:
        return None
