"""Usage over time: hours by user and job, and the amounts held at several moments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest, nsmallest
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from quota.models import Stretch
from quota.resources import HOURS_OF, hours
from rbac.models import Namespace


@dataclass(frozen=True)
class Use:
    """Usage of one attempt: hours by name."""

    namespace: int
    job: UUID
    label: str
    owner: str
    hours: Mapping[str, float]


def uses(since: datetime, now: datetime, *, namespace: Namespace | None = None) -> Iterator[Use]:
    """Return the usage from ``since`` until ``now``: one item per stretch, for the part of it in that period."""
    rows = Stretch.objects.filter(Q(ended=None) | Q(ended__gt=since), begun__lt=now)
    if namespace is not None:
        rows = rows.filter(reservation__namespace=namespace)
    of = "reservation__"
    names = ("amounts", "begun", "ended", f"{of}namespace_id", f"{of}job", f"{of}label", f"{of}owner__username")
    for amounts, begun, ended, namespace_id, job, label, owner in rows.values_list(*names).iterator():
        seconds = (min(ended or now, now) - max(begun, since)).total_seconds()
        yield Use(namespace_id, job, label, owner or "", hours(amounts, max(0.0, seconds)))


def added(found: Iterable[Use]) -> dict[str, float]:
    """Return the sums of the hours."""
    result = dict.fromkeys(HOURS_OF, 0.0)
    for use in found:
        for name in HOURS_OF:
            result[name] += use.hours[name]
    return result


# The most rows of each table of ``usage``.
MOST_USAGE_ROWS = 1000


@dataclass(frozen=True)
class Usage:
    """Hours by user and by job, largest first. Each row has its names and the hours.

    Each list has at most MOST_USAGE_ROWS rows. ``more_users`` and ``more_jobs`` count the others, which ``total``
    includes.
    """

    users: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    total: Mapping[str, float]
    more_users: int
    more_jobs: int


_Sums = dict[tuple[str, ...], dict[str, float]]


def usage(namespace: Namespace, since: datetime, until: datetime) -> Usage:
    """Return the usage in a period. Memory grows with the number of jobs, not with that of their reservations."""
    users: _Sums = {}
    jobs: _Sums = {}
    for use in uses(since, until, namespace=namespace):
        for sums, key in ((users, (use.owner,)), (jobs, (str(use.job), use.label, use.owner))):
            row = sums.setdefault(key, dict.fromkeys(HOURS_OF, 0.0))
            for name in HOURS_OF:
                row[name] += use.hours[name]
    total_hours = {name: sum(row[name] for row in users.values()) for name in HOURS_OF}
    return Usage(
        _largest(users, ("username",)),
        _largest(jobs, ("id", "name", "username")),
        total_hours,
        max(0, len(users) - MOST_USAGE_ROWS),
        max(0, len(jobs) - MOST_USAGE_ROWS),
    )


def _largest(sums: _Sums, names: tuple[str, ...]) -> list[dict[str, Any]]:
    largest = nlargest(MOST_USAGE_ROWS, sums.items(), key=lambda item: (item[1]["cpu_hours"], item[1]["gpu_hours"]))
    return [dict(zip(names, key, strict=True)) | used for key, used in largest]


@dataclass(frozen=True)
class HeldSeries:
    """The amounts of a resource that one job held at each of several moments."""

    job: UUID
    label: str
    namespace: str
    amounts: list[float]


def held_over_time(resource: str, moments: Sequence[datetime], most: int) -> tuple[list[HeldSeries], list[float]]:
    """Return the ``most`` largest holders of a resource at the moments, largest first, and the sum of all others.

    ``moments`` have to be in order. The sum has a number per moment, or is empty if there are no other holders. The
    rows are read twice, so that memory does not grow with the number of jobs times the number of moments.
    """
    rows = Stretch.objects.filter(Q(ended=None) | Q(ended__gt=moments[0]), begun__lte=moments[-1])
    sums: dict[UUID, float] = {}
    for amount, job, covered in _covered(rows, resource, moments):
        sums[job] = sums.get(job, 0.0) + amount * len(covered)
    largest = nsmallest(most, sums, key=lambda job: (-sums[job], str(job)))
    names = rows.filter(reservation__job__in=largest).values_list(*_SERIES_COLUMNS)
    series = {job: HeldSeries(job, label, namespace, [0.0] * len(moments)) for job, label, namespace in names}
    # A row may be added or removed between the two queries.
    rest = [0.0] * len(moments)
    for amount, job, covered in _covered(rows, resource, moments):
        amounts = series[job].amounts if job in series else rest
        for at in covered:
            amounts[at] += amount
    return [series[job] for job in largest if job in series], rest if any(rest) else []


_SERIES_COLUMNS = ("reservation__job", "reservation__label", "reservation__namespace__name")


def _covered(
    rows: QuerySet[Stretch], resource: str, moments: Sequence[datetime]
) -> Iterator[tuple[float, UUID, range]]:
    """Return for each row its amount, its job, and the indices of the moments at which it was held."""
    for amounts, begun, ended, key in rows.values_list("amounts", "begun", "ended", "reservation__job").iterator():
        last = len(moments) if ended is None else bisect_left(moments, ended)
        yield amounts.get(resource, 0), key, range(bisect_left(moments, begun), last)
