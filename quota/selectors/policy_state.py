"""The state of the platform, read as input of ``quota.policy``."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet, TextField, Window
from django.db.models.functions import Cast, RowNumber

from quota import policy
from quota.hours import used_this_month
from quota.models import Claim, Limit, Reservation
from quota.resources import HOURS_OF, Amounts, hours
from quota.selectors.limits import capacity, with_defaults
from rbac.models import Namespace

Key = tuple[UUID, int]
# Amounts by attempt.
Held = Mapping[Key, Amounts]


def state(now: datetime, *, around: Namespace | None = None, least: Held | None = None) -> policy.State:
    """Return the state of the platform as input of ``quota.policy``.

    ``around``: read only the namespaces that decisions about this one depend on, which is itself if no capacity is
    shared. ``least``: amounts that replace those held by the attempts in it.
    """
    return state_with(_claims(Claim.objects.filter(rows_around(around))), now, around, least)


def rows_around(around: Namespace | None) -> Q:
    """Return the condition for the rows that decisions about this namespace depend on; None: all rows."""
    return Q() if around is None or capacity() else Q(namespace=around)


def state_with(
    waiting: Sequence[policy.Claim], now: datetime, around: Namespace | None, least: Held | None
) -> policy.State:
    """Return the state with these claims and all present reservations."""
    rows = Reservation.objects.filter(rows_around(around), released=None)
    held = [_holding(_Held(*row), least or {}) for row in rows.values_list(*_HELD_COLUMNS)]
    names = (
        {each.namespace for each in held} | {each.namespace for each in waiting} | ({around.name} if around else set())
    )
    namespaces = {quota.name: quota for quota in _namespaces(names, held, now)}
    return policy.State(namespaces, capacity(), held, waiting)


class _Held(NamedTuple):
    """Columns of a reservation that decisions depend on."""

    job: UUID
    attempt: int
    namespace: str
    amounts: Mapping[str, float]
    created: datetime
    until: datetime | None
    priority: str
    recalled: datetime | None


_HELD_COLUMNS = ("job", "attempt", "namespace__name", "amounts", "created", "until", "priority", "recalled")
_CLAIM_COLUMNS = ("job", "attempt", "namespace__name", "text", "since", "length", "priority")


def heads_of_queues(only: Q, heads: int, now: datetime) -> tuple[list[policy.Claim], set[str]]:
    """Return the first claims of each namespace in the order of the policy, and the namespaces with further claims.

    Overdue claims come first, by age, then the others by turn; at most ``heads`` of each are read.
    """
    overdue = Q(since__lte=now - timedelta(seconds=policy.RULES.patience))
    parts = (
        Claim.objects.filter(only & overdue).annotate(place=_place_in_queue("since")),
        Claim.objects.filter(only & ~overdue).annotate(place=_place_in_queue("turn", "since")),
    )
    found: list[policy.Claim] = []
    cut: set[str] = set()
    for part in parts:
        # Claims of a later part do not directly follow a part that is cut.
        read = [claim for claim in _claims(part.filter(place__lte=heads)) if claim.namespace not in cut]
        found += read
        cut |= {name for name, count in Counter(claim.namespace for claim in read).items() if count >= heads}
    return found, cut


def _claims(rows: QuerySet[Claim]) -> list[policy.Claim]:
    texts = rows.annotate(text=Cast("amounts", TextField()))
    return [
        policy.Claim((job, attempt), namespace, _parsed(text), since.timestamp(), length, priority)
        for job, attempt, namespace, text, since, length, priority in texts.values_list(*_CLAIM_COLUMNS)
    ]


# Cached because many claims have the same amounts; the result is immutable.
@lru_cache(maxsize=4096)
def _parsed(text: str) -> Mapping[str, float]:
    return MappingProxyType(json.loads(text))


def _place_in_queue(*order: str) -> Window:
    return Window(RowNumber(), partition_by="namespace", order_by=[*order, "job"])


def _namespaces(names: set[str], held: list[policy.Holding], now: datetime) -> Iterator[policy.NamespaceQuota]:
    own: dict[int, list[Limit]] = {}
    for limit in Limit.objects.filter(namespace__name__in=names):
        own.setdefault(limit.namespace_id, []).append(limit)
    for namespace in Namespace.objects.filter(name__in=names):
        quota = namespace_quota(namespace.name, own.get(namespace.pk, []))
        bounded = any(budget is not None for budget in quota.budgets.values())
        yield replace(quota, spent=_spent(namespace, held, now)) if bounded else quota


def namespace_quota(name: str, own: Iterable[Limit]) -> policy.NamespaceQuota:
    """Return the quota of a namespace that has used none of its hours."""
    rows = {row.resource: row for row in own}
    limits = with_defaults({name: row.amount for name, row in rows.items()})
    budgets = {name: limits.pop(name) for name in HOURS_OF}
    return policy.NamespaceQuota(name, limits, {name: row.borrow for name, row in rows.items()}, budgets)


def _spent(namespace: Namespace, held: list[policy.Holding], now: datetime) -> dict[str, float]:
    """Return the hours used this month plus those that running attempts may still use until their timeouts."""
    spent = used_this_month(namespace, now)
    for each in held:
        if each.namespace == namespace.name and math.isfinite(each.until):
            for name, amount in hours(each.amounts, max(0.0, each.until - now.timestamp())).items():
                spent[name] += amount
    return spent


def _holding(row: _Held, least: Held) -> policy.Holding:
    return policy.Holding(
        key=(row.job, row.attempt),
        namespace=row.namespace,
        amounts=least.get((row.job, row.attempt), row.amounts),
        since=row.created.timestamp(),
        until=row.until.timestamp() if row.until else math.inf,
        priority=row.priority,
        recalled=row.recalled is not None,
    )
