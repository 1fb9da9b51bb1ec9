"""Removes sessions and tokens that are past their time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from rbac.models import ApiToken, Connection, Session

# A token that expired or was revoked stays on its owner's page for so long.
TOKENS = timedelta(days=30)


def prune(now: datetime) -> None:
    """Remove what is over."""
    Session.objects.filter(expire_date__lt=now).delete()
    Connection.objects.filter(expires__lt=now).delete()
    ApiToken.objects.filter(Q(expires__lt=now - TOKENS) | Q(revoked__lt=now - TOKENS)).delete()
