"""Reading what namespaces may use, hold and have used."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Q, QuerySet

from portal.common.time import now as wall_clock
from quota import policy
from quota.amounts import HELD, HOURS_OF, RESOURCES, Amounts, bare, hours, in_words, total
from quota.hours import used_this_month
from quota.models import Capacity, Claim, Kept, Kind, Limit, QuotaRequest, Reservation, Stored, Stretch
from quota.words import Verdict, free_in, verdict
from rbac.models import Namespace

Key = tuple[UUID, int]
# What attempts hold, or would hold.
Held = Mapping[Key, Amounts]


class QuotaView(TypedDict):
    """One number a resource; a limit or headroom of None means that there is none. Hours are those of this month;
    ``kept`` are bytes of the storage by what they are kept for."""

    limits: dict[str, float | None]
    borrow: dict[str, float]
    reserved: dict[str, float]
    used: dict[str, float]
    headroom: dict[str, float | None]
    kept: dict[str, int]


# --- Limits ----------------------------------------------------------------------------------------------------------
def limits_of(namespace: Namespace) -> dict[str, float | None]:
    """The limit of each resource: the namespace's own, else the default of the settings, else None."""
    return _with_defaults({row.resource: row.amount for row in Limit.objects.filter(namespace=namespace)})


def _with_defaults(own: Mapping[str, float | None]) -> dict[str, float | None]:
    defaults: Mapping[str, float] = settings.DEFAULT_QUOTA
    found = {resource: own.get(resource) for resource in RESOURCES}
    return {name: defaults.get(name) if amount is None else amount for name, amount in found.items()}


def borrowing_of(namespace: Namespace) -> dict[str, float]:
    """How much of each held resource the namespace may borrow."""
    own = dict(Limit.objects.filter(namespace=namespace).values_list("resource", "borrow"))
    return {resource: own.get(resource, 0.0) for resource in HELD}


def capacity() -> dict[str, float]:
    """How much the platform has of the resources that have an end."""
    return dict(Capacity.objects.values_list("resource", "amount"))


# --- What is held and was used ---------------------------------------------------------------------------------------
def reserved_in(namespace: Namespace) -> dict[str, float]:
    """What the namespace's attempts hold now."""
    held = Reservation.objects.filter(namespace=namespace, released=None).values_list("amounts", flat=True)
    return total(held)


@dataclass(frozen=True)
class Use:
    """What one attempt used in a time: hours by name."""

    namespace: int
    job: UUID
    label: str
    owner: str
    hours: Mapping[str, float]


def uses(since: datetime, now: datetime, *, namespace: Namespace | None = None) -> Iterator[Use]:
    """What attempts used from ``since`` until ``now``: what each stretch held, for as long as it lay in there."""
    rows = Stretch.objects.filter(Q(ended=None) | Q(ended__gt=since), begun__lt=now)
    if namespace is not None:
        rows = rows.filter(reservation__namespace=namespace)
    of = "reservation__"
    names = ("amounts", "begun", "ended", f"{of}namespace_id", f"{of}job", f"{of}label", f"{of}owner__username")
    for amounts, begun, ended, room, job, label, owner in rows.values_list(*names).iterator():
        seconds = (min(ended or now, now) - max(begun, since)).total_seconds()
        yield Use(room, job, label, owner or "", hours(amounts, max(0.0, seconds)))


def added(found: Iterable[Use]) -> dict[str, float]:
    """The hours of all of them."""
    result = dict.fromkeys(HOURS_OF, 0.0)
    for use in found:
        for name in HOURS_OF:
            result[name] += use.hours[name]
    return result


def quota_of(namespace: Namespace, *, now: datetime | None = None) -> QuotaView:
    """The whole of a namespace's quota. What is reserved is in use: a reservation is held by an attempt that runs."""
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


# --- What is kept ----------------------------------------------------------------------------------------------------
def kept_by_kind(namespace: Namespace) -> dict[str, int]:
    """Bytes of the storage by what they are kept for; every kind has a number."""
    found = dict(Stored.objects.filter(namespace=namespace).values_list("kind", "size"))
    return {str(kind): max(0, found.get(kind, 0)) for kind in Kind}


def largest_kept(namespace: Namespace) -> QuerySet[Kept]:
    """What keeps bytes, the largest first."""
    return Kept.objects.filter(namespace=namespace, size__gt=0).order_by("-size", "pk")


# --- What admission decides on ---------------------------------------------------------------------------------------
def state(now: datetime, *, around: Namespace | None = None, least: Held | None = None) -> policy.State:
    """The platform as ``quota.policy`` looks at it.

    With ``around`` only what the decisions of that namespace depend on: itself, as long as no capacity is shared. With
    ``least`` as if the attempts that it names held so much.
    """
    shared = capacity()
    only = Q() if around is None or shared else Q(namespace=around)
    held = list(Reservation.objects.filter(only, released=None))
    waiting = list(Claim.objects.filter(only))
    wanted = {row.namespace_id for row in (*held, *waiting)} | ({around.pk} if around else set())
    rooms = {room.name: room for room in _rooms(wanted, held, now)}
    names = dict(Namespace.objects.filter(pk__in=wanted).values_list("pk", "name"))
    return policy.State(
        rooms=rooms,
        capacity=shared,
        held=[_holding(row, names[row.namespace_id], least or {}) for row in held],
        waiting=[_claim(row, names[row.namespace_id]) for row in waiting],
    )


def _rooms(wanted: set[int], held: list[Reservation], now: datetime) -> Iterator[policy.Room]:
    own: dict[int, list[Limit]] = {}
    for limit in Limit.objects.filter(namespace__in=wanted):
        own.setdefault(limit.namespace_id, []).append(limit)
    for namespace in Namespace.objects.filter(pk__in=wanted):
        room = _room(namespace.name, own.get(namespace.pk, []))
        bounded = any(budget is not None for budget in room.budgets.values())
        yield replace(room, spent=_spent(namespace, held, now)) if bounded else room


def _room(name: str, own: Iterable[Limit]) -> policy.Room:
    """A namespace that has used none of its hours."""
    rows = {row.resource: row for row in own}
    limits = _with_defaults({name: row.amount for name, row in rows.items()})
    budgets = {name: limits.pop(name) for name in HOURS_OF}
    return policy.Room(name, limits, {name: row.borrow for name, row in rows.items()}, budgets)


def _spent(namespace: Namespace, held: list[Reservation], now: datetime) -> dict[str, float]:
    """What was used of the month's hours, and what running attempts may still use of them until their timeouts."""
    spent = used_this_month(namespace, now)
    for row in held:
        if row.namespace_id == namespace.pk and row.until is not None:
            for name, amount in hours(row.amounts, max(0.0, (row.until - now).total_seconds())).items():
                spent[name] += amount
    return spent


def _holding(row: Reservation, room: str, least: Held) -> policy.Holding:
    return policy.Holding(
        key=(row.job, row.attempt),
        room=room,
        amounts=least.get((row.job, row.attempt), row.amounts),
        since=row.created.timestamp(),
        until=row.until.timestamp() if row.until else float("inf"),
        priority=row.priority,
        recalled=row.recalled is not None,
    )


def _claim(row: Claim, room: str) -> policy.Claim:
    return policy.Claim(
        key=(row.job, row.attempt),
        room=room,
        amounts=row.amounts,
        since=row.since.timestamp(),
        length=row.length,
        priority=row.priority,
    )


@dataclass(frozen=True)
class Prospect:
    """Whose turn it would be, in order, and up to what each namespace and the platform may hold. A resource without an
    end is left out."""

    turns: tuple[Key, ...]
    ceilings: Mapping[str, Amounts]
    capacity: Amounts


def prospect(now: datetime, least: Held) -> Prospect:
    """Who could start if the attempts that ``least`` names held no more than it says: their room can be made."""
    looked_at = state(now, least=least)
    found = policy.outlook(looked_at, now.timestamp())
    ceilings = {
        name: {
            resource: limit + room.borrow.get(resource, 0.0)
            for resource, limit in room.limits.items()
            if limit is not None
        }
        for name, room in looked_at.rooms.items()
    }
    capacity = {name: amount for name, amount in looked_at.capacity.items() if amount is not None}
    return Prospect(tuple(cast(Key, key) for key in found.granted), ceilings, capacity)


def verdict_on(claim: policy.Claim, looked_at: policy.State, found: policy.Outlook) -> Verdict:
    """What is told of a claim that does not start now."""
    return verdict(found.waiting[claim.key], looked_at.rooms[claim.room], looked_at.capacity)


def preview(
    namespace: Namespace, amounts: Amounts, *, length: float, priority: str, now: datetime | None = None
) -> Verdict:
    """What would be decided on a claim that came now. Nothing is kept."""
    at = now or wall_clock()
    before = state(at, around=namespace)
    asked = policy.Claim("preview", namespace.name, amounts, at.timestamp(), length, priority)
    looked_at = policy.State(before.rooms, before.capacity, before.held, [*before.waiting, asked])
    found = policy.outlook(looked_at, at.timestamp())
    return Verdict(admitted=True) if asked.key in found.granted else verdict_on(asked, looked_at, found)


@dataclass(frozen=True)
class Bounds:
    """All ends that a namespace knows: its own, and those of the platform. Read once for all that is asked of them."""

    room: policy.Room
    capacity: Mapping[str, float]


def bounds_of(namespace: Namespace) -> Bounds:
    return Bounds(_room(namespace.name, Limit.objects.filter(namespace=namespace)), capacity())


def if_alone(bounds: Bounds, amounts: Amounts, *, length: float) -> Verdict:
    """What would be decided if nothing else ran or waited, and the month had just begun: whether it can ever start."""
    room = bounds.room
    asked = policy.Claim("alone", room.name, amounts, 0.0, length)
    looked_at = policy.State({room.name: room}, bounds.capacity, (), [asked])
    found = policy.outlook(looked_at, 0.0)
    return Verdict(admitted=True) if found.granted else verdict_on(asked, looked_at, found)


def recall_of(job: UUID, attempt: int) -> str:
    """The sentence with which the attempt was asked to give back what it borrowed; empty where it was not."""
    asked = Reservation.objects.filter(job=job, attempt=attempt, released=None).exclude(recalled=None)
    return asked.values_list("recalled_why", flat=True).first() or ""


def recalls() -> set[Key]:
    """The attempts that were asked to give back what they borrowed and have not done so yet."""
    asked = Reservation.objects.filter(released=None).exclude(recalled=None)
    return set(asked.values_list("job", "attempt"))


def holders(**filters: Any) -> Any:
    """Who holds what now, the largest holders of cores first."""
    rows = Reservation.objects.filter(released=None, **filters).select_related("namespace", "owner")
    return sorted(rows, key=lambda row: -row.amounts.get("cpu", 0))


# --- For people ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Usage:
    """Hours by user and by job, the largest first; each row has its names and the hours."""

    users: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    total: Mapping[str, float]


def usage(namespace: Namespace, since: datetime, until: datetime) -> Usage:
    """Who used how much in that time."""
    found = list(uses(since, until, namespace=namespace))
    users = _grouped(found, lambda use: (use.owner,), ("username",))
    jobs = _grouped(found, lambda use: (str(use.job), use.label, use.owner), ("id", "name", "username"))
    return Usage(users, jobs, added(found))


def _grouped(found: list[Use], group: Callable[[Use], tuple[str, ...]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, ...], list[Use]] = {}
    for use in found:
        groups.setdefault(group(use), []).append(use)
    rows = [dict(zip(names, key, strict=True)) | added(members) for key, members in groups.items()]
    return sorted(rows, key=lambda row: (-row["cpu_hours"], -row["gpu_hours"]))


def wishes(**filters: Any) -> QuerySet[QuotaRequest]:
    """Requests for more quota, ready to be shown."""
    return QuotaRequest.objects.filter(**filters).select_related("namespace", "asker", "answered_by")


@dataclass(frozen=True)
class Waiter:
    """Somebody in the queue, and what is told of it. ``verdict`` is None for one whose turn it is."""

    claim: Claim
    verdict: Verdict | None


def queue_of(namespace: Namespace, now: datetime) -> list[Waiter]:
    """What waits in a namespace, in the order in which it is looked at."""
    looked_at = state(now, around=namespace)
    found = policy.outlook(looked_at, now.timestamp())
    rows = Claim.objects.filter(namespace=namespace).select_related("owner")
    waiters = [Waiter(row, _told(row, looked_at, found)) for row in rows]
    return sorted(waiters, key=lambda waiter: (waiter.verdict.before if waiter.verdict else -1, waiter.claim.since))


def whole_queue(now: datetime) -> list[Waiter]:
    """What waits in all namespaces, the oldest first."""
    looked_at = state(now)
    found = policy.outlook(looked_at, now.timestamp())
    rows = Claim.objects.select_related("namespace", "owner").order_by("since", "pk")
    return [Waiter(row, _told(row, looked_at, found)) for row in rows]


@dataclass(frozen=True)
class Strand:
    """What one job held of a resource at each of some moments."""

    job: UUID
    label: str
    namespace: str
    amounts: list[float]


def held_over_time(resource: str, moments: Sequence[datetime]) -> list[Strand]:
    """Who held how much at those moments (in order), whoever held most in sum first."""
    rows = Stretch.objects.filter(Q(ended=None) | Q(ended__gt=moments[0]), begun__lte=moments[-1])
    of = "reservation__"
    strands: dict[UUID, Strand] = {}
    names = ("amounts", "begun", "ended", f"{of}job", f"{of}label", f"{of}namespace__name")
    for amounts, begun, ended, job, label, namespace in rows.values_list(*names).iterator():
        strand = strands.setdefault(job, Strand(job, label, namespace, [0.0] * len(moments)))
        first = bisect_left(moments, begun)
        last = len(moments) if ended is None else bisect_left(moments, ended)
        for at in range(first, last):
            strand.amounts[at] += amounts.get(resource, 0)
    return sorted(strands.values(), key=lambda strand: (-sum(strand.amounts), str(strand.job)))


def _told(row: Claim, looked_at: policy.State, found: policy.Outlook) -> Verdict | None:
    waiting = found.waiting.get((row.job, row.attempt))
    return verdict_on(waiting.claim, looked_at, found) if waiting else None


def overheld(namespace: Namespace) -> str:
    """The sentences for limits below what is held or kept; empty where there is none."""
    limits, held = limits_of(namespace), reserved_in(namespace)
    over = [name for name in HELD if (limit := limits[name]) is not None and held[name] > limit]
    told = []
    if over:
        parts = ", ".join(f"{in_words(name, held[name])} (limit {bare(name, limits[name] or 0)})" for name in over)
        told.append(f"Running jobs hold more than that now: {parts}. They keep it; nothing new starts until it fits.")
    kept, limit = sum(kept_by_kind(namespace).values()), limits["storage"]
    if limit is not None and kept > limit:
        told.append(f"{in_words('storage', kept)} is kept already. Nothing is deleted; nothing more is taken.")
    return " ".join(told)


def rooms_at_a_glance() -> list[dict[str, Any]]:
    """Every open namespace with what it holds of cores and GPUs, its limits, and how many attempts hold and wait; those
    that hold most first."""
    held: dict[int, list[Amounts]] = {}
    for pk, amounts in Reservation.objects.filter(released=None).values_list("namespace_id", "amounts"):
        held.setdefault(pk, []).append(amounts)
    own: dict[int, dict[str, float | None]] = {}
    for pk, resource, amount in Limit.objects.values_list("namespace_id", "resource", "amount"):
        own.setdefault(pk, {})[resource] = amount
    waiting = dict(Claim.objects.values_list("namespace_id").annotate(count=Count("pk")))
    rows = []
    for namespace in Namespace.objects.filter(closed=None).order_by("name"):
        holding = held.get(namespace.pk, [])
        rows.append(
            {
                "name": namespace.name,
                "held": total(holding),
                "limits": _with_defaults(own.get(namespace.pk, {})),
                "running": len(holding),
                "waiting": waiting.get(namespace.pk, 0),
            }
        )
    return sorted(rows, key=lambda row: -row["held"]["cpu"])
