"""Writing the audit log. A row is written in the transaction of its action and never changed: ``rbac.audit.triggers``
makes the database refuse changes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from portal.common.errors import ValidationFailed
from rbac import messages
from rbac.models import AuditEntry, Namespace, Outcome, User

_TARGET_LENGTH = 200
LONGEST_REASON = 500


def record(
    action: str,
    target: str,
    *,
    actor: User | None,
    namespace: Namespace | None = None,
    detail: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    outcome: Outcome = Outcome.DONE,
    reason: str = "",
    request: HttpRequest | None = None,
) -> AuditEntry:
    """Write one row. ``action`` is ``thing.verb`` (``member.add``), ``target`` the thing; neither holds a secret.

    ``before`` and ``after`` hold the changed values, by name; ``reason`` is the actor's own. ``request`` provides the
    address, the request's number, and the admin who impersonates the actor.
    """
    return AuditEntry.objects.create(
        action=action,
        target=target[:_TARGET_LENGTH],
        actor=actor,
        impersonator=getattr(request, "impersonator", None),
        namespace=namespace.name if namespace else "",
        detail=dict(detail or {}),
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
        outcome=outcome,
        reason=reason[:LONGEST_REASON],
        address=address_of(request),
        request_id=getattr(request, "request_id", ""),
    )


def stated(reason: str) -> str:
    """Return the reason for a change on one line. Raises ValidationFailed when it is missing or too long."""
    text = " ".join(reason.split())
    if not text or len(text) > LONGEST_REASON:
        raise ValidationFailed({"reason": [messages.REASON_REQUIRED(count=LONGEST_REASON)]})
    return text


def address_of(request: HttpRequest | None) -> str | None:
    """Return the caller's address; None when there is none (a command, a unix socket)."""
    raw = request.META.get("REMOTE_ADDR", "") if request is not None else ""
    try:
        return str(ipaddress.ip_address(raw))
    except ValueError:
        return None
