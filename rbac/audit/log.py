"""Writing the audit log. A row is written in the transaction of its action and never changed: ``rbac.audit.triggers``
makes the database refuse changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portal.common.errors import ValidationFailed
from rbac import messages
from rbac.audit.context import AuditContext, current
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
    context: AuditContext | None = None,
) -> AuditEntry:
    """Write one row. ``action`` is ``thing.verb`` (``member.add``), ``target`` the thing; neither holds a secret.

    ``before`` and ``after`` hold the changed values, by name; ``reason`` is the actor's own. ``context`` is the
    origin of the change, by default the current one.
    """
    context = context or current()
    return AuditEntry.objects.create(
        action=action,
        target=target[:_TARGET_LENGTH],
        actor=actor,
        impersonator=context.impersonator,
        namespace=namespace.name if namespace else "",
        detail=dict(detail or {}),
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
        outcome=outcome,
        reason=reason[:LONGEST_REASON],
        address=context.address,
        request_id=context.request_id,
    )


def stated(reason: str) -> str:
    """Return the reason for a change on one line. Raises ValidationFailed when it is missing or too long."""
    text = " ".join(reason.split())
    if not text or len(text) > LONGEST_REASON:
        raise ValidationFailed({"reason": [messages.REASON_REQUIRED(count=LONGEST_REASON)]})
    return text
