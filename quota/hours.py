"""Hours of a namespace: the usage of stretches, summed by day when they end.

A month may have tens of thousands of stretches, and every admission needs their hours under a lock. So the hours of a
stretch are added to the sums of its days in the transaction that ends it. A reader adds up one row per day and the open
stretches.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet, Sum

from portal.common.rows import ensure
from quota.models import DailyUse, Stretch
from quota.resources import HOURS_OF, Amounts, hours
from rbac.models import Namespace

_DAY = timedelta(days=1)


def month_of(now: datetime) -> datetime:
    """Return the beginning of the month, in UTC. Budgets are monthly."""
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def by_day(amounts: Amounts, begun: datetime, ended: datetime) -> Iterator[tuple[date, dict[str, float]]]:
    """Yield for each day (UTC) of the period the hours of holding the amounts. Pure."""
    start = begun.astimezone(UTC)
    while start < ended:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
        end = min(midnight, ended)
        yield start.date(), hours(amounts, (end - start).total_seconds())
        start = midnight


@transaction.atomic
def end_stretches(stretches: QuerySet[Stretch], at: datetime) -> None:
    """End the open ones of these stretches and add their hours to the sums. Idempotent."""
    for row in stretches.filter(ended=None).select_related("reservation"):
        if Stretch.objects.filter(pk=row.pk, ended=None).update(ended=at):
            add(row.reservation.namespace_id, row.amounts, row.begun, at)


def add(namespace: int, amounts: Amounts, begun: datetime, ended: datetime) -> None:
    """Add the hours of a stretch that has ended."""
    for day, used in by_day(amounts, begun, ended):
        if any(used.values()):
            rows = DailyUse.objects.filter(namespace=namespace, day=day)
            more = {name: F(name) + amount for name, amount in used.items()}
            if not rows.update(**more):
                ensure(DailyUse, namespace_id=namespace, day=day)
                rows.update(**more)


def used_this_month(namespace: Namespace, now: datetime) -> dict[str, float]:
    """Return the core and device hours from the beginning of the month until now."""
    since = month_of(now)
    days = DailyUse.objects.filter(namespace=namespace, day__gte=since.date(), day__lte=now.date())
    sums = days.aggregate(**{name: Sum(name) for name in HOURS_OF})
    used = {name: sums[name] or 0.0 for name in HOURS_OF}
    going = Stretch.objects.filter(reservation__namespace=namespace, reservation__released=None, ended=None)
    for amounts, begun in going.values_list("amounts", "begun"):
        seconds = (now - max(begun, since)).total_seconds()
        for name, amount in hours(amounts, max(0.0, seconds)).items():
            used[name] += amount
    return used
