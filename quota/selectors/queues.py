"""Waiting claims in the order of the policy, with their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from django.db.models import F, OuterRef, QuerySet

from quota.models import Claim
from quota.selectors.decisions import Decision, decide
from quota.selectors.policy_state import Key
from quota.verdicts import Verdict
from rbac.models import Namespace


def claimed(jobs: Sequence[UUID]) -> set[Key]:
    """Return the keys of the claims of these jobs."""
    return set(Claim.objects.filter(job__in=jobs).values_list("job", "attempt"))


def claims_of(job: F | OuterRef, attempt: F | OuterRef) -> QuerySet[Claim]:
    """Return the claim of an attempt that an outer query refers to."""
    return Claim.objects.filter(job=job, attempt=attempt)


@dataclass(frozen=True)
class Waiter:
    """A claim in the queue and its verdict, which is None if it can start now."""

    claim: Claim
    verdict: Verdict | None


# The most claims that a list of waiting ones shows.
MOST_WAITERS = 200


@dataclass(frozen=True)
class Queue:
    """The first waiting claims. ``more`` counts the others."""

    shown: list[Waiter]
    more: int


def queue_of(namespace: Namespace, now: datetime, most: int = MOST_WAITERS) -> Queue:
    """Return the first ``most`` waiting claims of a namespace, in the order of the policy."""
    decision = decide(now, around=namespace)
    waiting = Claim.objects.filter(namespace=namespace)
    looked_at = sorted(
        (claim for claim in decision.looked_at.waiting if claim.namespace == namespace.name),
        key=lambda claim: (_before(decision, cast(Key, claim.key)), claim.since),
    )
    keys = [cast(Key, claim.key) for claim in looked_at]
    places = {key: place for place, key in enumerate(keys[:most])}
    rows = list(waiting.filter(job__in=[job for job, _ in places]).select_related("owner"))
    rows = sorted((row for row in rows if _key(row) in places), key=lambda row: places[_key(row)])
    if len(keys) < most:
        # Claims that the policy did not consider wait behind all others.
        others = waiting.exclude(job__in=[job for job, _ in keys]).select_related("owner")
        rows += others.order_by("turn", "since", "pk")[: most - len(keys)]
    return _queue(rows, waiting, decision)


def whole_queue(now: datetime, most: int = MOST_WAITERS) -> Queue:
    """Return the first ``most`` waiting claims of all namespaces, the oldest first."""
    waiting = Claim.objects.all()
    rows = waiting.select_related("namespace", "owner").order_by("since", "pk")[:most]
    return _queue(list(rows), waiting, decide(now))


def _queue(rows: Sequence[Claim], waiting: QuerySet[Claim], decision: Decision) -> Queue:
    granted = set(decision.found.granted)
    shown = [Waiter(row, None if _key(row) in granted else decision.verdict(_key(row))) for row in rows]
    return Queue(shown, max(0, waiting.count() - len(shown)))


def _key(row: Claim) -> Key:
    return row.job, row.attempt


def _before(decision: Decision, key: Key) -> int:
    waiting = decision.found.waiting.get(key)
    return -1 if waiting is None else waiting.before
