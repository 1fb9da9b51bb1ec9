"""Amounts that attempts hold now, storage in use, and recalls."""

from __future__ import annotations

from datetime import datetime
from heapq import nsmallest
from typing import NamedTuple, TypedDict
from uuid import UUID

from django.db.models import QuerySet

from portal.common.clock import now as wall_clock
from quota import messages
from quota.hours import used_this_month
from quota.models import Kept, Kind, Reservation, Stored
from quota.resources import HELD, RESOURCES, bare, in_words, total
from quota.selectors.limits import borrowing_of, limits_of
from quota.selectors.policy_state import Key
from quota.verdicts import free_in
from rbac.models import Namespace
from runtime.messages import paragraph
from runtime.messages.composition import listed


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


def reserved_in(namespace: Namespace) -> dict[str, float]:
    """Return the sum of the amounts that the namespace's attempts hold now."""
    held = Reservation.objects.filter(namespace=namespace, released=None).values_list("amounts", flat=True)
    return total(held)


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


def kept_by_kind(namespace: Namespace) -> dict[str, int]:
    """Return the bytes of storage by kind. Every kind has a number."""
    found = dict(Stored.objects.filter(namespace=namespace).values_list("kind", "size"))
    return {str(kind): max(0, found.get(kind, 0)) for kind in Kind}


def largest_kept(namespace: Namespace) -> QuerySet[Kept]:
    """Return the things that use storage, the largest first."""
    return Kept.objects.filter(namespace=namespace, size__gt=0).order_by("-size", "pk")


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
