"""Removal of expired sessions and tokens, and of audit rows older than the setting."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from rbac.audit.triggers import LEAST_DAYS
from rbac.emails import failed_emails
from rbac.models import ApiToken, AuditEntry, Connection, Session

# An expired or revoked token stays on its owner's page for so long.
TOKENS = timedelta(days=30)


# Rows of the audit log that one transaction removes, and one pass.
BATCH = 1000
PASS = 20 * BATCH


def prune(now: datetime) -> bool:
    """Remove expired rows. Return False when rows of the audit log are left for the next pass."""
    Session.objects.filter(expire_date__lt=now).delete()
    Connection.objects.filter(expires__lt=now).delete()
    ApiToken.objects.filter(Q(expires__lt=now - TOKENS) | Q(revoked__lt=now - TOKENS)).delete()
    failed_emails.prune(now)
    return _prune_audit_log(now)


def _prune_audit_log(now: datetime) -> bool:
    """Remove the oldest rows first: after an interrupted pass the log is complete from some moment on."""
    if not settings.KEEP_AUDIT_DAYS:
        return True
    # The database refuses to delete younger ones.
    cutoff = now - timedelta(days=max(settings.KEEP_AUDIT_DAYS, LEAST_DAYS))
    old = AuditEntry.objects.filter(at__lt=cutoff).order_by("at", "id")
    for _ in range(PASS // BATCH):
        keys = list(old.values_list("pk", flat=True)[:BATCH])
        AuditEntry.objects.filter(pk__in=keys).delete()
        if len(keys) < BATCH:
            return True
    return False
