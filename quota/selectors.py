"""Reading what a namespace may use, holds and has used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from django.conf import settings

from portal.common.time import now as wall_clock
from quota.models import Limit, Reservation
from quota.policy import HELD, HOURS_OF, RESOURCES, total
from rbac.models import Namespace


class QuotaView(TypedDict):
    """One number a resource; a limit or headroom of None means that there is none."""

    limits: dict[str, float | None]
    reserved: dict[str, float]
    used: dict[str, float]
    headroom: dict[str, float | None]


def limits_of(namespace: Namespace) -> dict[str, float | None]:
    """The limit of each resource: the namespace's own, else the default of the settings, else None."""
    own = dict(Limit.objects.filter(namespace=namespace).values_list("resource", "amount"))
    defaults: Mapping[str, float] = settings.DEFAULT_QUOTA
    return {resource: own.get(resource, defaults.get(resource)) for resource in RESOURCES}


def reserved_in(namespace: Namespace) -> dict[str, float]:
    """What the namespace's attempts hold now."""
    held = Reservation.objects.filter(namespace=namespace, released=None).values_list("amounts", flat=True)
    return total(held)


def hours_used(namespace: Namespace, now: datetime) -> dict[str, float]:
    """Core and device hours, summed over the lifetimes of all reservations; those still held count until now."""
    hours = dict.fromkeys(HOURS_OF, 0.0)
    rows = Reservation.objects.filter(namespace=namespace).values_list("amounts", "created", "released")
    for amounts, created, released in rows.iterator():
        lifetime = ((released or now) - created).total_seconds() / 3600
        for resource, of in HOURS_OF.items():
            hours[resource] += amounts.get(of, 0) * lifetime
    return hours


def quota_of(namespace: Namespace, *, now: datetime | None = None) -> QuotaView:
    """The whole of a namespace's quota. What is reserved is in use: a reservation is held by an attempt that runs."""
    limits = limits_of(namespace)
    reserved = reserved_in(namespace)
    used = reserved | hours_used(namespace, now or wall_clock())
    headroom = {name: _left(limits[name], used[name]) for name in RESOURCES}
    return QuotaView(limits=limits, reserved={name: reserved[name] for name in HELD}, used=used, headroom=headroom)


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)
