"""Queries for limits, holdings, usage and the queues of namespaces."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import nlargest, nsmallest
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, cast
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F, OuterRef, Q, QuerySet, TextField, Window
from django.db.models.functions import Cast, RowNumber

from portal.common.clock import now as wall_clock
from portal.common.pagination import Page, paginate
from quota import messages, policy
from quota.hours import used_this_month
from quota.models import Capacity, Claim, Kept, Kind, Limit, QuotaRequest, Reservation, Stored, Stretch
from quota.policy import Obstacle
from quota.resources import HELD, HOURS_OF, RESOURCES, Amounts, bare, hours, in_words, total
from quota.verdicts import MOST_COUNTED, Verdict, free_in, verdict
from rbac.models import Namespace
from runtime.messages import paragraph
from runtime.messages.composition import listed

Key = tuple[UUID, int]
# Amounts by attempt.
Held = Mapping[Key, Amounts]


class QuotaView(TypedDict):
    """Quota of a namespace, one number per resource.

    A limit or headroom of None means unlimited. Hours are those of this month. ``kept``: bytes of storage by kind.
    """

    limits: dict[str, float | None]
    borrow: dict[str, float]
    reserved: dict[str, float]
    used: dict[str, float]
    headroom: dict[str, float | None]
    kept: dict[str, int]


# --- Limits ----------------------------------------------------------------------------------------------------------
def limits_of(namespace: Namespace) -> dict[str, float | None]:
    """Return the limit of each resource: the namespace's own, else the default of the settings, else None."""
    return _with_defaults({row.resource: row.amount for row in Limit.objects.filter(namespace=namespace)})


def _with_defaults(own: Mapping[str, float | None]) -> dict[str, float | None]:
    defaults: Mapping[str, float] = settings.DEFAULT_QUOTA
    found = {resource: own.get(resource) for resource in RESOURCES}
    return {name: defaults.get(name) if amount is None else amount for name, amount in found.items()}


def borrowing_of(namespace: Namespace) -> dict[str, float]:
    """Return the amount of each held resource that the namespace may borrow."""
    own = dict(Limit.objects.filter(namespace=namespace).values_list("resource", "borrow"))
    return {resource: own.get(resource, 0.0) for resource in HELD}


def capacity() -> dict[str, float]:
    """Return the platform's capacity of each limited resource."""
    return dict(Capacity.objects.values_list("resource", "amount"))


# --- Holdings and usage ----------------------------------------------------------------------------------------------
def reserved_in(namespace: Namespace) -> dict[str, float]:
    """Return the sum of the amounts that the namespace's attempts hold now."""
    held = Reservation.objects.filter(namespace=namespace, released=None).values_list("amounts", flat=True)
    return total(held)


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


def quota_of(namespace: Namespace, *, now: datetime | None = None) -> QuotaView:
    """Return the limits and usage of a namespace. Reserved amounts count as used, because their attempts run."""
    limits = limits_of(namespace)
    reserved, kept = reserved_in(namespace), kept_by_kind(namespace)
    used = reserved | {"storage": sum(kept.values())} | used_this_month(namespace, now or wall_clock())
    return QuotaView(
        limits=limits,
        borrow=borrowing_of(namespace),
        reserved={name: reserved[name] for name in HELD},
        used={name: used[name] for name in RESOURCES},
        headroom=free_in(used, limits),
        kept=kept,
    )


# --- Storage ---------------------------------------------------------------------------------------------------------
def kept_by_kind(namespace: Namespace) -> dict[str, int]:
    """Return the bytes of storage by kind. Every kind has a number."""
    found = dict(Stored.objects.filter(namespace=namespace).values_list("kind", "size"))
    return {str(kind): max(0, found.get(kind, 0)) for kind in Kind}


def largest_kept(namespace: Namespace) -> QuerySet[Kept]:
    """Return the things that use storage, the largest first."""
    return Kept.objects.filter(namespace=namespace, size__gt=0).order_by("-size", "pk")


# --- Input and results of admission -----------------------------------------------------------------------------------
# The number of claims of each namespace that are read at first. The policy considers no more than its depth behind the
# first waiting one, unless some are granted or hopeless.
_HEADS = policy.RULES.depth + 30


@dataclass(frozen=True)
class Decision:
    """The state that was read and the policy's decisions on it.

    Only the head of a long queue is read. Claims that are not in ``looked_at.waiting`` wait behind those that are;
    ``behind`` is their verdict.
    """

    looked_at: policy.State
    found: policy.Outlook

    def verdict(self, key: Key) -> Verdict:
        """Return the verdict on a claim that does not start now."""
        waiting = self.found.waiting.get(key)
        return behind() if waiting is None else verdict_on(waiting.claim, self.looked_at, self.found)


def decide(now: datetime, *, around: Namespace | None = None, least: Held | None = None) -> Decision:
    """Read the state and return the policy's decisions.

    They equal the decisions on the whole queues, at a cost that does not grow with the length of the queues. ``around``
    and ``least`` are those of ``state``.
    """
    heads = _HEADS
    while True:
        waiting, cut = _heads_of_queues(_only(around), heads, now)
        looked_at = _beside(waiting, now, around, least)
        found = policy.outlook(looked_at, now.timestamp())
        if not cut or _reaches_its_depth(found, cut):
            return Decision(looked_at, found)
        heads *= 4


def decide_again(claims: Sequence[policy.Claim], now: datetime, around: Namespace | None) -> Decision:
    """Return the decisions on claims that were read before, given the present reservations."""
    looked_at = _beside(claims, now, around, None)
    held = {each.key for each in looked_at.held}
    looked_at = replace(looked_at, waiting=[claim for claim in claims if claim.key not in held])
    return Decision(looked_at, policy.outlook(looked_at, now.timestamp()))


def _reaches_its_depth(found: policy.Outlook, cut: set[str]) -> bool:
    """Whether the policy would have considered no claim beyond the cut of any of these namespaces."""
    looked_at = dict.fromkeys(cut, 0)
    for waiting in found.waiting.values():
        if waiting.claim.namespace in cut and waiting.obstacle not in (Obstacle.NEVER, Obstacle.BUDGET):
            looked_at[waiting.claim.namespace] += 1
    # One more than the depth, so that claims beyond the cut have more before them than messages count.
    return all(count > policy.RULES.depth + 1 for count in looked_at.values())


def behind() -> Verdict:
    """Return the verdict on a claim that has too many before it to be considered."""
    claim, nothing = policy.Claim("behind", "", {}, 0.0), (0,) * len(HELD)
    return verdict(
        policy.Waiting(claim, Obstacle.BEHIND, MOST_COUNTED + 1, nothing, nothing), policy.NamespaceQuota(""), {}
    )


def is_far_behind(claim: Claim) -> bool:
    """Whether so many claims of its namespace are before a claim that no decision would consider it.

    Claims that wait for no amounts held by others count too. In that case the sweep decides, which reads beyond them.
    """
    before = Claim.objects.filter(namespace=claim.namespace, turn__lt=claim.turn, since__lt=claim.since)
    return before.order_by()[: _HEADS + 1].count() > _HEADS


def claimed(jobs: Sequence[UUID]) -> set[Key]:
    """Return the keys of the claims of these jobs."""
    return set(Claim.objects.filter(job__in=jobs).values_list("job", "attempt"))


def claims_of(job: F | OuterRef, attempt: F | OuterRef) -> QuerySet[Claim]:
    """Return the claim of an attempt that an outer query refers to."""
    return Claim.objects.filter(job=job, attempt=attempt)


def state(now: datetime, *, around: Namespace | None = None, least: Held | None = None) -> policy.State:
    """Return the state of the platform as input of ``quota.policy``.

    ``around``: read only the namespaces that decisions about this one depend on, which is itself if no capacity is
    shared. ``least``: amounts that replace those held by the attempts in it.
    """
    return _beside(_claims(Claim.objects.filter(_only(around))), now, around, least)


def _only(around: Namespace | None) -> Q:
    return Q() if around is None or capacity() else Q(namespace=around)


def _beside(
    waiting: Sequence[policy.Claim], now: datetime, around: Namespace | None, least: Held | None
) -> policy.State:
    """Return the state with these claims and all present reservations."""
    rows = Reservation.objects.filter(_only(around), released=None)
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


def _heads_of_queues(only: Q, heads: int, now: datetime) -> tuple[list[policy.Claim], set[str]]:
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
        quota = _namespace_quota(namespace.name, own.get(namespace.pk, []))
        bounded = any(budget is not None for budget in quota.budgets.values())
        yield replace(quota, spent=_spent(namespace, held, now)) if bounded else quota


def _namespace_quota(name: str, own: Iterable[Limit]) -> policy.NamespaceQuota:
    """Return the quota of a namespace that has used none of its hours."""
    rows = {row.resource: row for row in own}
    limits = _with_defaults({name: row.amount for name, row in rows.items()})
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


@dataclass(frozen=True)
class Prospect:
    """Attempts that could start, in order, and the most that each namespace and the platform may hold.

    Unlimited resources are left out.
    """

    turns: tuple[Key, ...]
    ceilings: Mapping[str, Amounts]
    capacity: Amounts


def prospect(now: datetime, least: Held) -> Prospect:
    """Return the attempts that could start if the attempts in ``least`` were reduced to the amounts there."""
    decision = decide(now, least=least)
    looked_at, found = decision.looked_at, decision.found
    ceilings = {
        name: {
            resource: limit + quota.borrow.get(resource, 0.0)
            for resource, limit in quota.limits.items()
            if limit is not None
        }
        for name, quota in looked_at.namespaces.items()
    }
    capacity = {name: amount for name, amount in looked_at.capacity.items() if amount is not None}
    return Prospect(tuple(cast(Key, key) for key in found.granted), ceilings, capacity)


def verdict_on(claim: policy.Claim, looked_at: policy.State, found: policy.Outlook) -> Verdict:
    """Return the verdict on a claim that does not start now."""
    return verdict(found.waiting[claim.key], looked_at.namespaces[claim.namespace], looked_at.capacity)


def preview(
    namespace: Namespace, amounts: Amounts, *, length: float, priority: str, now: datetime | None = None
) -> Verdict:
    """Return the verdict that a claim would get now. Nothing is stored."""
    at = now or wall_clock()
    before = state(at, around=namespace)
    asked = policy.Claim("preview", namespace.name, amounts, at.timestamp(), length, priority)
    looked_at = policy.State(before.namespaces, before.capacity, before.held, [*before.waiting, asked])
    found = policy.outlook(looked_at, at.timestamp())
    return Verdict(admitted=True) if asked.key in found.granted else verdict_on(asked, looked_at, found)


@dataclass(frozen=True)
class Bounds:
    """The limits of a namespace and the capacities of the platform, read once for several checks."""

    quota: policy.NamespaceQuota
    capacity: Mapping[str, float]


def bounds_of(namespace: Namespace) -> Bounds:
    return Bounds(_namespace_quota(namespace.name, Limit.objects.filter(namespace=namespace)), capacity())


def if_alone(bounds: Bounds, amounts: Amounts, *, length: float) -> Verdict:
    """Return the verdict if nothing else ran or waited and the month had just begun: whether it can ever start."""
    quota = bounds.quota
    asked = policy.Claim("alone", quota.name, amounts, 0.0, length)
    looked_at = policy.State({quota.name: quota}, bounds.capacity, (), [asked])
    found = policy.outlook(looked_at, 0.0)
    return Verdict(admitted=True) if found.granted else verdict_on(asked, looked_at, found)


def recall_of(job: UUID, attempt: int) -> str:
    """Return the message of the recall of what the attempt borrowed; empty if there is none."""
    asked = Reservation.objects.filter(job=job, attempt=attempt, released=None).exclude(recalled=None)
    return asked.values_list("recalled_why", flat=True).first() or ""


def recalls() -> set[Key]:
    """Return the attempts whose borrowed amounts were recalled and are not released yet."""
    asked = Reservation.objects.filter(released=None).exclude(recalled=None)
    return set(asked.values_list("job", "attempt"))


class Holders(NamedTuple):
    """The largest holders of cores, largest first. ``more`` counts the others, which ``held`` includes."""

    rows: list[Reservation]
    more: int
    held: dict[str, float]


def holders(most: int, namespace: Namespace | None = None) -> Holders:
    """Return the present holders on the platform or in one namespace: rows for ``most`` reservations, and the number
    and amounts of the others."""
    rows = Reservation.objects.filter(released=None)
    if namespace is not None:
        rows = rows.filter(namespace=namespace)
    amounts = list(rows.values_list("pk", "amounts"))
    largest = nsmallest(most, amounts, key=lambda one: (-one[1].get("cpu", 0), one[0]))
    found = rows.select_related("namespace", "owner").in_bulk([pk for pk, _ in largest])
    return Holders(
        [found[pk] for pk, _ in largest if pk in found],
        len(amounts) - len(largest),
        total(held for _, held in amounts),
    )


# --- For pages -------------------------------------------------------------------------------------------------------
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


def quota_requests(**filters: Any) -> QuerySet[QuotaRequest]:
    """Return requests for more quota, with the related rows that pages show."""
    return QuotaRequest.objects.filter(**filters).select_related("namespace", "asker", "answered_by")


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


def overheld(namespace: Namespace) -> str:
    """Return the messages for limits below the held or stored amounts; empty if there is none."""
    limits, held = limits_of(namespace), reserved_in(namespace)
    over = [name for name in HELD if (limit := limits[name]) is not None and held[name] > limit]
    texts: list[str] = []
    if over:
        amounts = listed(
            messages.HELD_AND_LIMIT(amount=in_words(name, held[name]), limit=bare(name, limits[name] or 0))
            for name in over
        )
        texts.append(messages.HELD_OVER_LIMIT(amounts=amounts))
    kept, limit = sum(kept_by_kind(namespace).values()), limits["storage"]
    if limit is not None and kept > limit:
        texts.append(messages.STORAGE_OVER_LIMIT(amount=bare("storage", kept)))
        texts.append(messages.STORAGE_CLOSED_TO_NEW_DATA())
    return paragraph(*texts)


def namespace_overview(query: Mapping[str, str]) -> Page:
    """Return a page of the open namespaces by name, each with its held amounts, limits, and numbers of attempts that
    run and wait. Raises ValidationFailed for an invalid cursor or limit."""
    page = paginate(Namespace.objects.filter(closed=None), query, order=("name",), render=lambda row: row)
    shown: list[Namespace] = page["results"]
    keys = [namespace.pk for namespace in shown]
    held: dict[int, list[Amounts]] = {}
    running = Reservation.objects.filter(released=None, namespace__in=keys)
    for pk, amounts in running.values_list("namespace_id", "amounts"):
        held.setdefault(pk, []).append(amounts)
    own: dict[int, dict[str, float | None]] = {}
    for pk, resource, amount in Limit.objects.filter(namespace__in=keys).values_list(
        "namespace_id", "resource", "amount"
    ):
        own.setdefault(pk, {})[resource] = amount
    claims = Claim.objects.filter(namespace__in=keys)
    waiting = dict(claims.values_list("namespace_id").annotate(count=Count("pk")))
    rows = [
        {
            "name": namespace.name,
            "held": total(held.get(namespace.pk, [])),
            "limits": _with_defaults(own.get(namespace.pk, {})),
            "running": len(held.get(namespace.pk, [])),
            "waiting": waiting.get(namespace.pk, 0),
        }
        for namespace in shown
    ]
    return Page(results=rows, next=page["next"])
