"""Limits, borrowing and capacities."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings

from quota.models import Capacity, Limit
from quota.resources import HELD, RESOURCES
from rbac.models import Namespace


def limits_of(namespace: Namespace) -> dict[str, float | None]:
    """Return the limit of each resource: the namespace's own, else the default of the settings, else None."""
    return with_defaults({row.resource: row.amount for row in Limit.objects.filter(namespace=namespace)})


def with_defaults(own: Mapping[str, float | None]) -> dict[str, float | None]:
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
