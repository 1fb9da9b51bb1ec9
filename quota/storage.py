"""Accounting of the storage of namespaces, in bytes: checked before bytes are written, and counted.

Callers pass the ids and names of objects, never the objects themselves. Every package that stores data reports it here.

``Kept`` has a row per object, ``Stored`` their sums. Both change in one transaction, ``Kept`` first, by relative
updates, so that there are no deadlocks and no lost updates. Only ``take`` checks limits, under the locks of
``quota.ledger`` (shared capacity, then the namespace), so that of two requests that each fit alone only one is
accepted. ``repair`` corrects wrong numbers after a crash.
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
from quota import verdicts
from quota.models import Capacity, Kept, Kind, Stored
from quota.selectors import Bounds, bounds_of, kept_by_kind, largest_kept
from rbac.models import Namespace

# Rows that changed within this time are not repaired, because their bytes may still be on their way.
SETTLED = timedelta(hours=1)
_LABEL_LENGTH = 100


@dataclass(frozen=True)
class StoredObject:
    """An object of another package that uses storage: a job, a dataset or a snapshot of code.

    ``namespace``: the primary key of its namespace. ``subject``: its own id. ``label``: its name for people.
    """

    namespace: int
    kind: Kind
    subject: str
    label: str = ""


# --- Checks ----------------------------------------------------------------------------------------------------------
def check(namespace: Namespace, size: int, bounds: Bounds) -> None:
    """Check that ``size`` more bytes fit now. Not even zero bytes fit if the limit is reached.

    Raises QuotaExceeded with the numbers and a message that names what to delete.
    """
    used = kept_by_kind(namespace)
    limit, shared = bounds.quota.limits["storage"], bounds.capacity.get("storage")
    needed, total = max(size, 1), sum(used.values())
    if limit is not None and total + needed > limit:
        largest = largest_kept(namespace).first()
        most = verdicts.Most(largest.kind, largest.label or largest.subject, largest.size) if largest else None
        message = verdicts.storage_full(namespace.name, size, limit, used, most)
        raise QuotaExceeded(message, numbers={"storage": verdicts.numbers(size, limit, limit - total)})
    if shared is not None:
        everywhere = Stored.objects.aggregate(sum=Sum("size"))["sum"] or 0
        if everywhere + needed > shared:
            message = verdicts.platform_storage_full(size, shared, shared - everywhere)
            raise QuotaExceeded(message, numbers={"storage": verdicts.numbers(size, shared, shared - everywhere)})


@transaction.atomic
def take(namespace: Namespace, stored: StoredObject, size: int) -> None:
    """Count ``size`` more bytes of an object before they are written. Raises like ``check``; then it counts nothing."""
    list(Capacity.objects.select_for_update().filter(resource="storage"))
    Namespace.objects.select_for_update().get(pk=namespace.pk)
    check(namespace, size, bounds_of(namespace))
    add(stored, size)


# --- Counting --------------------------------------------------------------------------------------------------------
@transaction.atomic
def add(stored: StoredObject, size: int) -> None:
    """Count ``size`` more bytes that are stored already, or fewer (negative) that are deleted. Checks no limit."""
    if not size:
        return
    rows = Kept.objects.filter(namespace_id=stored.namespace, kind=stored.kind, subject=stored.subject)
    if not rows.update(size=F("size") + size, changed=wall_clock()):
        _ensure(stored)
        rows.update(size=F("size") + size)
    _sum_up(stored.namespace, stored.kind, size)


def _ensure(stored: StoredObject) -> None:
    ensure(
        Kept,
        namespace_id=stored.namespace,
        kind=stored.kind,
        subject=stored.subject,
        label=stored.label[:_LABEL_LENGTH],
        changed=wall_clock(),
    )


def _sum_up(namespace: int, kind: str, size: int) -> None:
    rows = Stored.objects.filter(namespace_id=namespace, kind=kind)
    if not rows.update(size=F("size") + size):
        ensure(Stored, namespace_id=namespace, kind=kind)
        rows.update(size=F("size") + size)


@transaction.atomic
def measured(stored: StoredObject, size: int) -> None:
    """Set the bytes of an object to ``size``, whatever was counted before. Zero bytes leave no row."""
    if size:
        _ensure(stored)  # a row to lock, so that of two first measurements at once the second one waits
    rows = Kept.objects.select_for_update().filter(
        namespace_id=stored.namespace, kind=stored.kind, subject=stored.subject
    )
    before = rows.values_list("size", flat=True).first()
    add(stored, size - (before or 0))
    if before is not None and not size:
        rows.delete()


def forget(stored: StoredObject) -> None:
    """Remove an object that is deleted, with all its bytes of that kind."""
    measured(stored, 0)


def is_kept(stored: StoredObject) -> bool:
    """Whether bytes of the object are counted already."""
    return Kept.objects.filter(namespace_id=stored.namespace, kind=stored.kind, subject=stored.subject).exists()


# --- Repair ----------------------------------------------------------------------------------------------------------
def repair(kind: Kind, actual: Mapping[StoredObject, int], now: datetime, *, settled: timedelta = SETTLED) -> int:
    """Correct the numbers of one kind to the actual sizes of all objects. Return how many numbers were wrong.

    Rows that changed within ``settled`` stay as they are.
    """
    fresh = Kept.objects.filter(kind=kind, changed__gt=now - settled)
    moving = set(fresh.values_list("namespace_id", "subject"))
    found = {(stored.namespace, stored.subject): (stored, size) for stored, size in actual.items()}
    wrong = 0
    known = Kept.objects.filter(kind=kind).values_list("namespace_id", "subject", "label", "size")
    for namespace, subject, label, size in list(known):
        stored, really = found.pop((namespace, subject), (StoredObject(namespace, kind, subject, label), 0))
        if really != size and (namespace, subject) not in moving:
            measured(stored, really)
            wrong += 1
    for stored, size in found.values():
        if size:
            measured(stored, size)
            wrong += 1
    return wrong + _repair_sums(kind)


def _repair_sums(kind: Kind) -> int:
    """Correct the sums of one kind. Each is locked before it is computed.

    A transaction that changes ``Kept`` meanwhile updates the sum afterwards.
    """
    wrong = 0
    for row in Stored.objects.filter(kind=kind):
        with transaction.atomic():
            Stored.objects.select_for_update().get(pk=row.pk)
            really = Kept.objects.filter(namespace=row.namespace_id, kind=kind).aggregate(sum=Sum("size"))["sum"] or 0
            wrong += Stored.objects.filter(pk=row.pk).exclude(size=really).update(size=really)
    return wrong
