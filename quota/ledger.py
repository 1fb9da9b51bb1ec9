"""The ledger: claims and reservations of attempts. Called by the ``jobs`` package, never directly by people.

The quota is never over-committed: every decision that grants amounts is made under locks, first those of the shared
capacities (by name), then the one of the namespace. On SQLite a transaction is IMMEDIATE, and so exclusive from its
beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, cast
from uuid import UUID

from django.db import transaction

from portal.common.clock import now as wall_clock
from quota import messages, policy
from quota.hours import end_stretches
from quota.models import Capacity, Claim, Reservation, Stretch
from quota.resources import HELD, Amounts, hours
from quota.selectors import Decision, Held, Key, behind, decide, decide_again, is_far_behind, state
from quota.verdicts import ADMITTED, Verdict, verdict
from rbac.audit import log as audit_log
from rbac.audit.context import NO_REQUEST
from rbac.models import Namespace, User


@dataclass(frozen=True)
class ReservationRequest:
    """The request of one attempt of one job.

    ``length``: the longest time that it may hold the amounts, in seconds. ``since``: when it began to wait; None: now.
    ``label`` and ``owner`` are shown to people.
    """

    job: UUID
    attempt: int
    amounts: Amounts
    length: float = 3600.0
    priority: str = "normal"
    since: datetime | None = None
    label: str = ""
    owner: User | None = None


@transaction.atomic
def reserve(namespace: Namespace, request: ReservationRequest, *, now: datetime | None = None) -> Verdict:
    """Reserve the amounts for one attempt if it is its turn and they fit; else add its claim to the queue.

    Idempotent: a further call for an attempt with a reservation returns "admitted" and reserves nothing more. An
    attempt whose reservation was released gets no second one.
    """
    at = now or wall_clock()
    _lock(namespace)
    if Reservation.objects.filter(job=request.job, attempt=request.attempt).exists():
        return ADMITTED
    claim = _queue(namespace, request, at)
    if is_far_behind(claim):
        return behind()
    decision = decide(at, around=namespace)
    key: Key = (request.job, request.attempt)
    if key not in decision.found.granted:
        return decision.verdict(key)
    claim.delete()
    _hold([claim], at)
    return ADMITTED


def _queue(namespace: Namespace, request: ReservationRequest, at: datetime) -> Claim:
    """Create or update the claim of an attempt with its present request. An existing claim keeps its place."""
    fields = _fields(namespace, request)
    placed = {"since": request.since or at, "turn": _turn(request, request.since or at)}
    claim, made = Claim.objects.update_or_create(
        job=request.job, attempt=request.attempt, defaults=fields, create_defaults={**fields, **placed}
    )
    if not made and claim.turn != _turn(request, claim.since):
        claim.turn = _turn(request, claim.since)
        claim.save(update_fields=["turn"])
    return claim


def renew(claim: Claim, request: ReservationRequest) -> bool:
    """Update a claim to the present request of its attempt; its place is kept. False if nothing differs."""
    if claim.amounts == _held(request.amounts) and (claim.length, claim.priority) == (request.length, request.priority):
        return False
    _queue(claim.namespace, request, claim.since)
    return True


def _fields(namespace: Namespace, request: ReservationRequest) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "amounts": _held(request.amounts),
        "length": request.length,
        "priority": request.priority,
        "label": request.label,
        "owner": request.owner,
    }


def _turn(request: ReservationRequest, since: datetime) -> datetime:
    return since - timedelta(seconds=policy.RULES.head_start.get(request.priority, 0.0))


def _hold(claims: Sequence[Claim], at: datetime) -> None:
    reservations = Reservation.objects.bulk_create(
        Reservation(
            namespace_id=claim.namespace_id,
            job=claim.job,
            attempt=claim.attempt,
            label=claim.label,
            owner_id=claim.owner_id,
            amounts=claim.amounts,
            priority=claim.priority,
            created=at,
            until=at + timedelta(seconds=claim.length),
        )
        for claim in claims
    )
    Stretch.objects.bulk_create(
        Stretch(reservation=reservation, amounts=reservation.amounts, begun=at) for reservation in reservations
    )


def _held(amounts: Amounts) -> dict[str, float]:
    return {resource: amounts[resource] for resource in HELD if amounts.get(resource)}


@transaction.atomic
def resize(*, namespace: Namespace, job: UUID, attempt: int, amounts: Amounts, now: datetime | None = None) -> Verdict:
    """Change the amounts that an attempt holds, if the increase fits. Does nothing for an attempt that holds none.

    A new stretch begins, so that hours are counted with the amounts held at each moment.
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
    """Hold the larger amounts if they fit and no claim waits for the same amounts. Return whether they are held now.

    These are the claims of all other jobs if the platform has a capacity, else those of the namespace.
    """
    _lock(namespace)
    shared = Capacity.objects.exists()
    waiting = Claim.objects.exclude(job=job) if shared else Claim.objects.filter(namespace=namespace).exclude(job=job)
    if waiting.exists():
        return False
    return resize(namespace=namespace, job=job, attempt=attempt, amounts=amounts, now=now).admitted


def _growth(namespace: Namespace, held: Reservation, amounts: Amounts, at: datetime) -> Verdict:
    """Decide whether the increase fits beside all holdings. Waiting claims are ignored, because the job runs."""
    grown = {name: amount for name, amount in amounts.items() if amount > held.amounts.get(name, 0)}
    if not grown:
        return ADMITTED
    looked_at = _with_growth_claim(state(at, around=namespace), namespace.name, held, grown, at)
    found = policy.outlook(looked_at, at.timestamp())
    if found.granted:
        return ADMITTED
    # A growth does not wait, it is refused: so the verdict has no latest start.
    (refused,) = found.waiting.values()
    return verdict(refused._replace(latest=None), looked_at.namespaces[namespace.name], looked_at.capacity)


def _with_growth_claim(
    around: policy.State, namespace: str, held: Reservation, grown: Amounts, at: datetime
) -> policy.State:
    """Return the state without the reservation's share of the growing resources, and with a claim for the larger
    amounts until the same end."""
    length = max(0.0, (held.until - at).total_seconds()) if held.until else 0.0
    kept = hours({name: held.amounts.get(name, 0) for name in grown}, length)
    of = around.namespaces[namespace]
    spent = {name: amount - kept[name] for name, amount in of.spent.items()}
    others = [each for each in around.held if each.key != (held.job, held.attempt)]
    asked = policy.Claim("growth", namespace, grown, at.timestamp(), length, held.priority)
    namespaces = {**around.namespaces, namespace: replace(of, spent=spent)}
    return policy.State(namespaces, around.capacity, others, [asked])


@transaction.atomic
def release(*, job: UUID, attempt: int, now: datetime | None = None) -> bool:
    """Release the reservation of an attempt and remove its claim. True only for the call that released amounts."""
    at = now or wall_clock()
    Claim.objects.filter(job=job, attempt=attempt).delete()
    given_back = Reservation.objects.filter(job=job, attempt=attempt, released=None).update(released=at) == 1
    if given_back:
        end_stretches(Stretch.objects.filter(reservation__job=job, reservation__attempt=attempt), at)
    return given_back


def _lock(*namespaces: Namespace) -> None:
    """Serialise decisions about the shared capacities and these namespaces. The fixed order avoids deadlocks.

    ``no_key`` lets other transactions insert rows that refer to a locked namespace. ``release`` needs that: it holds
    the lock of the reservation, for which ``resize`` waits, when it inserts the first hours of a day.
    """
    list(Capacity.objects.select_for_update().order_by("resource"))
    locked = Namespace.objects.select_for_update(no_key=True)
    list(locked.filter(pk__in={each.pk for each in namespaces}).order_by("pk"))


# --- All at once -----------------------------------------------------------------------------------------------------
# The most attempts that one transaction admits, because others wait for its locks.
MOST_AT_ONCE = 200


@dataclass(frozen=True)
class Review:
    """The result of a review of all claims, by (job, attempt).

    ``granted``: the attempts that could start now, in order. ``reasons``: the messages of those that wait. Claims in
    neither wait behind the head of a long queue; ``behind`` is their message.
    """

    decision: Decision

    @property
    def granted(self) -> tuple[Key, ...]:
        return tuple(map(_pair, self.decision.found.granted))

    @cached_property
    def reasons(self) -> Mapping[Key, str]:
        return {_pair(key): self.decision.verdict(_pair(key)).why for key in self.decision.found.waiting}

    @cached_property
    def behind(self) -> str:
        return behind().why

    def groups(self) -> list[list[policy.Claim]]:
        """Return the claims to pass to ``admit``, grouped by the namespaces that have to be decided on together.

        That is one group if namespaces share a capacity, else one per namespace. Groups in which no claim could start
        are left out.
        """
        looked_at, keys = self.decision.looked_at, set(self.granted)
        groups: dict[str, list[policy.Claim]] = {}
        for claim in looked_at.waiting:
            groups.setdefault("" if looked_at.capacity else claim.namespace, []).append(claim)
        return [group for group in groups.values() if any(claim.key in keys for claim in group)]


def review(now: datetime, *, least: Held | None = None) -> Review:
    """Decide on all claims, and recall capacity that was lent and that its owners need now.

    ``least``: the amounts that attempts can be reduced to without being stopped. Nothing is recalled if that is enough.
    """
    decision = decide(now)
    if decision.found.recalled:
        _call_back(now, least or {})
    return Review(decision)


@transaction.atomic
def queue_up(requests: Sequence[tuple[Namespace, ReservationRequest]], now: datetime) -> None:
    """Create claims for attempts that have none yet. The caller's transaction has to lock the rows of their jobs."""
    Claim.objects.bulk_create(
        (
            Claim(
                job=request.job,
                attempt=request.attempt,
                since=request.since or now,
                turn=_turn(request, request.since or now),
                **_fields(namespace, request),
            )
            for namespace, request in requests
        ),
        ignore_conflicts=True,
    )


@dataclass(frozen=True)
class Answer:
    """The answer of the callback of ``admit``.

    Claims in ``taken`` become reservations. Claims in ``stale``, whose attempts no longer wait, are removed. All others
    stay claims.
    """

    taken: frozenset[Key]
    stale: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Admission:
    """The result of ``admit``: the claims that it has not tried to start, and whether more of them could start now."""

    left: Sequence[policy.Claim]
    more: bool


@transaction.atomic
def admit(claims: Sequence[policy.Claim], take: Callable[[Sequence[Claim]], Answer], now: datetime) -> Admission:
    """Decide under locks which of the claims start now, and reserve the amounts of those that ``take`` accepts.

    ``claims``: one of ``Review.groups``, as it was read. At most MOST_AT_ONCE of them start, in the order of the
    decision. ``take`` runs inside the transaction, so that its writes and the reservations are committed together.
    """
    locked = list(Namespace.objects.filter(name__in={claim.namespace for claim in claims}).order_by("pk"))
    _lock(*locked)
    decision = decide_again(claims, now, locked[0] if len(locked) == 1 else None)
    turns = [_pair(key) for key in decision.found.granted][:MOST_AT_ONCE]
    read = {claim.key: claim for claim in claims}
    rows = {(row.job, row.attempt): row for row in Claim.objects.filter(job__in=[job for job, _ in turns])}
    # The decision does not apply to a claim whose request has changed since it was read.
    start = [rows[key] for key in turns if key in rows and _asks_the_same(rows[key], read[key])]
    answer = take(start)
    _hold([row for row in start if (row.job, row.attempt) in answer.taken], now)
    over = answer.taken | answer.stale
    Claim.objects.filter(pk__in=[row.pk for key, row in rows.items() if key in over]).delete()
    left = [claim for claim in claims if claim.key not in set(turns)]
    return Admission(left, len(decision.found.granted) > len(turns))


def _asks_the_same(row: Claim, claim: policy.Claim) -> bool:
    return row.amounts == claim.amounts and (row.length, row.priority) == (claim.length, claim.priority)


def _pair(key: policy.Key) -> Key:
    """Narrow a policy key to the (job, attempt) that ``quota.selectors.state`` uses as keys."""
    return cast(Key, key)


@transaction.atomic
def _call_back(now: datetime, least: Held) -> None:
    """Decide again under the lock of the capacities, and mark the reservations to recall for the reconciler."""
    list(Capacity.objects.select_for_update().order_by("resource"))
    found = decide(now, least=least).found
    for key, claim in found.recalled.items():
        job, attempt = _pair(key)
        why = messages.CAPACITY_RECLAIMED_BY(namespace=claim.namespace)
        rows = Reservation.objects.filter(job=job, attempt=attempt, released=None, recalled=None)
        row = rows.select_related("namespace").first()
        if row is not None and rows.update(recalled=now, recalled_why=why):
            # The platform decides: the row has no origin, whichever request is the occasion.
            detail = {"for": claim.namespace}
            audit_log.record(
                "quota.recall", str(job), actor=None, namespace=row.namespace, detail=detail, context=NO_REQUEST
            )
