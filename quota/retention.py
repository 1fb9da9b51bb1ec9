"""Removal of reservations that were released more than ``settings.KEEP_USAGE_DAYS`` days ago, with their stretches."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from quota.models import Reservation

BATCH = 1000


def prune(now: datetime) -> int:
    """Remove at most ``BATCH`` reservations and return their number. The sums of hours by day stay."""
    if not settings.KEEP_USAGE_DAYS:
        return 0
    old = Reservation.objects.filter(released__lt=now - timedelta(days=settings.KEEP_USAGE_DAYS)).order_by("released")
    keys = list(old.values_list("pk", flat=True)[:BATCH])
    Reservation.objects.filter(pk__in=keys).delete()
    return len(keys)
