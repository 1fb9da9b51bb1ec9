"""What namespaces keep in the storage, in bytes: asked for before they are taken, counted when they are.

This room is given ids and names, never the things themselves; who keeps something says so through this door.

``Kept`` has a row a thing, ``Stored`` their sums; both change in one transaction, ``Kept`` first, by relative updates:
so nobody waits in a circle and no change is lost. Only ``take`` decides, under the locks of ``quota.ledger`` (shared
capacity, then the namespace): two who each fit alone are not both let in. What a crash leaves wrong, ``repair`` puts
right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Sum

from portal.common.clock import now as wall_clock
from portal.common.errors import QuotaExceeded
from portal.common.rows import ensure
from quota import messages
from quota.models import Capacity, Kept, Kind, Stored
from quota.selectors import Bounds, bounds_of, kept_by_kind, largest_kept
from rbac.models import Namespace

# What was changed a moment ago may be on its way still: it is not repaired.
SETTLED = timedelta(hours=1)
_LABEL_LENGTH = 100


@dataclass(frozen=True)
class Thing:
    """Something that keeps bytes. ``namespace`` is the namespace's key, ``subject`` the thing's own id, ``label`` what
    people call it."""

    namespace: int
    kind: Kind
    subject: str
    label: str = ""


# --- Asking ----------------------------------------------------------------------------------------------------------
def check(namespace: Namespace, size: int, bounds: Bounds) -> None:
    """Whether that many more bytes would fit now; none at all do where the limit is reached.

    Raises QuotaExceeded with the numbers and the message that says what to delete.
    """
    used = kept_by_kind(namespace)
    limit, shared = bounds.quota.limits["storage"], bounds.capacity.get("storage")
    needed, total = max(size, 1), sum(used.values())
    if limit is not None and total + needed > limit:
        largest = largest_kept(namespace).first()
        most = messages.Most(largest.kind, largest.label or largest.subject, largest.size) if largest else None
        message = messages.storage_full(namespace.name, size, limit, used, most)
        raise QuotaExceeded(message, numbers={"storage": messages.numbers(size, limit, limit - total)})
    if shared is not None:
        everywhere = Stored.objects.aggregate(sum=Sum("size"))["sum"] or 0
        if everywhere + needed > shared:
            message = messages.platform_storage_full(size, shared, shared - everywhere)
            raise QuotaExceeded(message, numbers={"storage": messages.numbers(size, shared, shared - everywhere)})


@transaction.atomic
def take(namespace: Namespace, thing: Thing, size: int) -> None:
    """Count ``size`` bytes more for the thing, before they come. Raises like ``check``, and nothing is counted then."""
    list(Capacity.objects.select_for_update().filter(resource="storage"))
    Namespace.objects.select_for_update().get(pk=namespace.pk)
    check(namespace, size, bounds_of(namespace))
    add(thing, size)


# --- Counting --------------------------------------------------------------------------------------------------------
@transaction.atomic
def add(thing: Thing, size: int) -> None:
    """Count that many bytes more, or fewer, of what is there already or gone."""
    if not size:
        return
    rows = Kept.objects.filter(namespace_id=thing.namespace, kind=thing.kind, subject=thing.subject)
    if not rows.update(size=F("size") + size, changed=wall_clock()):
        _ensure(thing)
        rows.update(size=F("size") + size)
    _sum_up(thing.namespace, thing.kind, size)


def _ensure(thing: Thing) -> None:
    ensure(
        Kept,
        namespace_id=thing.namespace,
        kind=thing.kind,
        subject=thing.subject,
        label=thing.label[:_LABEL_LENGTH],
        changed=wall_clock(),
    )


def _sum_up(namespace: int, kind: str, size: int) -> None:
    rows = Stored.objects.filter(namespace_id=namespace, kind=kind)
    if not rows.update(size=F("size") + size):
        ensure(Stored, namespace_id=namespace, kind=kind)
        rows.update(size=F("size") + size)


@transaction.atomic
def measured(thing: Thing, size: int) -> None:
    """The thing keeps so many bytes now, however many were counted before. Nothing where it keeps none and had none."""
    if size:
        _ensure(thing)  # a row to lock: of two who measure it for the first time, the second waits too
    rows = Kept.objects.select_for_update().filter(namespace_id=thing.namespace, kind=thing.kind, subject=thing.subject)
    before = rows.values_list("size", flat=True).first()
    add(thing, size - (before or 0))
    if before is not None and not size:
        rows.delete()


def forget(thing: Thing) -> None:
    """The thing is gone, and all that it kept of that kind."""
    measured(thing, 0)


def is_kept(thing: Thing) -> bool:
    """Whether something is counted for it already."""
    return Kept.objects.filter(namespace_id=thing.namespace, kind=thing.kind, subject=thing.subject).exists()


# --- Putting right ---------------------------------------------------------------------------------------------------
def repair(kind: Kind, actual: Mapping[Thing, int], now: datetime, *, settled: timedelta = SETTLED) -> int:
    """Count what is really kept of a kind, by everybody. What was changed within ``settled`` is left alone.

    How many amounts were wrong.
    """
    fresh = Kept.objects.filter(kind=kind, changed__gt=now - settled)
    moving = set(fresh.values_list("namespace_id", "subject"))
    found = {(thing.namespace, thing.subject): (thing, size) for thing, size in actual.items()}
    wrong = 0
    known = Kept.objects.filter(kind=kind).values_list("namespace_id", "subject", "label", "size")
    for namespace, subject, label, size in list(known):
        thing, really = found.pop((namespace, subject), (Thing(namespace, kind, subject, label), 0))
        if really != size and (namespace, subject) not in moving:
            measured(thing, really)
            wrong += 1
    for thing, size in found.values():
        if size:
            measured(thing, size)
            wrong += 1
    return wrong + _repair_sums(kind)


def _repair_sums(kind: Kind) -> int:
    """Whoever changes a row of ``Kept`` meanwhile adds to the sum afterwards: the sum is locked before it is made."""
    wrong = 0
    for row in Stored.objects.filter(kind=kind):
        with transaction.atomic():
            Stored.objects.select_for_update().get(pk=row.pk)
            really = Kept.objects.filter(namespace=row.namespace_id, kind=kind).aggregate(sum=Sum("size"))["sum"] or 0
            wrong += Stored.objects.filter(pk=row.pk).exclude(size=really).update(size=really)
    return wrong
