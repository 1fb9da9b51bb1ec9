"""The ledger: what attempts wait for, hold and give back. Called by the machinery of jobs, never by people.

Nobody over-commits: every decision that grants something is taken under locks, those of the shared capacities first (by
name), then the namespace's. On SQLite a transaction is IMMEDIATE and so alone from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

from django.db import transaction

from portal.common.time import now as wall_clock
from quota import policy
from quota.amounts import HELD, Amounts, hours
from quota.hours import end_stretches
from quota.models import Capacity, Claim, Reservation, Stretch
from quota.selectors import Held, Key, state, verdict_on
from quota.words import ADMITTED, Verdict, verdict
from rbac import audit
from rbac.models import Namespace, User


@dataclass(frozen=True)
class Ask:
    """What one attempt of one job asks for. ``length``: how long it may hold it at most, in seconds; ``since``: from
    when on it waits; ``label`` and ``owner`` are for those who read the ledger."""

    job: UUID
    attempt: int
    amounts: Amounts
    length: float = 3600.0
    priority: str = "normal"
    since: datetime | None = None
    label: str = ""
    owner: User | None = None


@transaction.atomic
def reserve(namespace: Namespace, ask: Ask, *, now: datetime | None = None) -> Verdict:
    """Hold the amounts for one attempt, if it is its turn and they fit; else it waits in the queue.

    May be called again for the same attempt: the answer is then "admitted" and nothing more is held. An attempt whose
    reservation was released gets no second one.
    """
    at = now or wall_clock()
    _lock(namespace)
    if Reservation.objects.filter(job=ask.job, attempt=ask.attempt).exists():
        return ADMITTED
    claim = _queue(namespace, ask, at)
    looked_at = state(at, around=namespace)
    found = policy.outlook(looked_at, at.timestamp())
    key: Key = (ask.job, ask.attempt)
    if key not in found.granted:
        return verdict_on(found.waiting[key].claim, looked_at, found)
    claim.delete()
    _hold(claim, at)
    return ADMITTED


def _queue(namespace: Namespace, ask: Ask, at: datetime) -> Claim:
    """The attempt's claim, with what it asks for now; its place is kept."""
    fields = {
        "namespace": namespace,
        "amounts": _held(ask.amounts),
        "length": ask.length,
        "priority": ask.priority,
        "label": ask.label,
        "owner": ask.owner,
    }
    claim, _ = Claim.objects.update_or_create(
        job=ask.job, attempt=ask.attempt, defaults=fields, create_defaults={**fields, "since": ask.since or at}
    )
    return claim


def _hold(claim: Claim, at: datetime) -> None:
    reservation = Reservation.objects.create(
        namespace=claim.namespace,
        job=claim.job,
        attempt=claim.attempt,
        label=claim.label,
        owner=claim.owner,
        amounts=claim.amounts,
        priority=claim.priority,
        created=at,
        until=at + timedelta(seconds=claim.length),
    )
    Stretch.objects.create(reservation=reservation, amounts=claim.amounts, begun=at)


def _held(amounts: Amounts) -> dict[str, float]:
    return {resource: amounts[resource] for resource in HELD if amounts.get(resource)}


@transaction.atomic
def resize(*, namespace: Namespace, job: UUID, attempt: int, amounts: Amounts, now: datetime | None = None) -> Verdict:
    """Hold other amounts for an attempt that holds some, if what grows fits. For one that holds none this is nothing.

    Hours are counted with what was held when: a new stretch begins.
    """
    at = now or wall_clock()
    _lock(namespace)
    held = Reservation.objects.select_for_update().filter(job=job, attempt=attempt, released=None).first()
    if held is None:
        return ADMITTED
    decided = _growth(namespace, held, amounts, at)
    if decided.admitted and held.amounts != _held(amounts):
        held.amounts = _held(amounts)
        held.save(update_fields=["amounts"])
        end_stretches(Stretch.objects.filter(reservation=held), at)
        Stretch.objects.create(reservation=held, amounts=held.amounts, begun=at)
    return decided


@transaction.atomic
def take_more(*, namespace: Namespace, job: UUID, attempt: int, amounts: Amounts, now: datetime | None = None) -> bool:
    """Hold the larger amounts too, if they fit and nobody waits for what they take. Whether they are held now."""
    _lock(namespace)
    shared = Capacity.objects.exists()
    waiting = Claim.objects.exclude(job=job) if shared else Claim.objects.filter(namespace=namespace).exclude(job=job)
    if waiting.exists():
        return False
    return resize(namespace=namespace, job=job, attempt=attempt, amounts=amounts, now=now).admitted


def _growth(namespace: Namespace, held: Reservation, amounts: Amounts, at: datetime) -> Verdict:
    """Whether what grows fits beside all that is held. It is not measured against those who wait: the job runs."""
    grown = {name: amount for name, amount in amounts.items() if amount > held.amounts.get(name, 0)}
    if not grown:
        return ADMITTED
    looked_at = _as_if_anew(state(at, around=namespace), namespace.name, held, grown, at)
    found = policy.outlook(looked_at, at.timestamp())
    if found.granted:
        return ADMITTED
    # Nothing is promised: it does not wait for its growth, it is refused.
    (refused,) = found.waiting.values()
    return verdict(refused._replace(latest=None), looked_at.rooms[namespace.name], looked_at.capacity)


def _as_if_anew(around: policy.State, room: str, held: Reservation, grown: Amounts, at: datetime) -> policy.State:
    """The platform without what grows of the reservation, and with the claim of an attempt that asks for the larger
    amounts until the same end."""
    length = max(0.0, (held.until - at).total_seconds()) if held.until else 0.0
    kept = hours({name: held.amounts.get(name, 0) for name in grown}, length)
    of = around.rooms[room]
    spent = {name: amount - kept[name] for name, amount in of.spent.items()}
    others = [each for each in around.held if each.key != (held.job, held.attempt)]
    asked = policy.Claim("growth", room, grown, at.timestamp(), length, held.priority)
    rooms = {**around.rooms, room: replace(of, spent=spent)}
    return policy.State(rooms, around.capacity, others, [asked])


@transaction.atomic
def release(*, job: UUID, attempt: int, now: datetime | None = None) -> bool:
    """Give back what the attempt holds, or its place in the queue. True for the one call that gave back amounts."""
    at = now or wall_clock()
    Claim.objects.filter(job=job, attempt=attempt).delete()
    given_back = Reservation.objects.filter(job=job, attempt=attempt, released=None).update(released=at) == 1
    if given_back:
        end_stretches(Stretch.objects.filter(reservation__job=job, reservation__attempt=attempt), at)
    return given_back


def _lock(namespace: Namespace) -> None:
    """One decision at a time about what is decided on. Always in this order, so that nobody waits in a circle."""
    list(Capacity.objects.select_for_update().order_by("resource"))
    Namespace.objects.select_for_update().get(pk=namespace.pk)


# --- All at once -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Review:
    """``granted``: who could start now, in order; ``told``: what the others wait for. By (job, attempt)."""

    granted: tuple[Key, ...]
    told: Mapping[Key, str]


def review(now: datetime, *, least: Held | None = None) -> Review:
    """Look at everything that waits, and call back what is lent to who stands in the way of its owners.

    ``least``: what attempts can be brought down to without being stopped. Nobody is called back where that is enough.
    """
    looked_at = state(now)
    found = policy.outlook(looked_at, now.timestamp())
    if found.recalled:
        _call_back(now, least or {})
    told = {_pair(key): verdict_on(waiting.claim, looked_at, found).why for key, waiting in found.waiting.items()}
    return Review(granted=tuple(map(_pair, found.granted)), told=told)


def _pair(key: policy.Key) -> Key:
    """The keys of ``quota.selectors.state``."""
    return cast(Key, key)


@transaction.atomic
def _call_back(now: datetime, least: Held) -> None:
    """Decide again, alone, and note who has to give back; the machinery of jobs finds the notes."""
    list(Capacity.objects.select_for_update().order_by("resource"))
    found = policy.outlook(state(now, least=least), now.timestamp())
    for key, claim in found.recalled.items():
        job, attempt = _pair(key)
        why = f"It ran on capacity that `{claim.room}` had lent and needs now."
        rows = Reservation.objects.filter(job=job, attempt=attempt, released=None, recalled=None)
        row = rows.select_related("namespace").first()
        if row is not None and rows.update(recalled=now, recalled_why=why):
            audit.record("quota.recall", str(job), actor=None, namespace=row.namespace, detail={"for": claim.room})
