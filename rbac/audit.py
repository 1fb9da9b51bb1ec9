"""The trail of what was done. A row is written in the transaction of the deed and never changed."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from rbac.models import AuditEntry, Namespace, User

_TARGET_LENGTH = 200


def record(
    action: str,
    target: str,
    *,
    actor: User | None,
    namespace: Namespace | None = None,
    detail: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
) -> AuditEntry:
    """Write one row. ``action`` is ``thing.verb`` (``member.add``), ``target`` the thing; no secret in ``detail``."""
    return AuditEntry.objects.create(
        action=action,
        target=target[:_TARGET_LENGTH],
        actor=actor,
        namespace=namespace,
        detail=dict(detail or {}),
        address=address_of(request),
    )


def address_of(request: HttpRequest | None) -> str | None:
    """The caller's address; None where there is none (a command, a unix socket)."""
    raw = request.META.get("REMOTE_ADDR", "") if request is not None else ""
    try:
        return str(ipaddress.ip_address(raw))
    except ValueError:
        return None
