"""Holding and giving back what attempts use, and changing the limits. Nobody over-commits: see ``_locked``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest

from portal.common.errors import ValidationFailed
from portal.common.time import now as wall_clock
from quota.models import Limit, Reservation
from quota.policy import HELD, RESOURCES, Amounts, Verdict, decide, total
from quota.selectors import limits_of, reserved_in
from rbac import audit
from rbac.models import Namespace, User
from rbac.services import require_admin

LARGEST_LIMIT = 10**18


@transaction.atomic
def reserve(*, namespace: Namespace, job: UUID, attempt: int, amounts: Amounts) -> Verdict:
    """Hold the amounts for one attempt, if they fit.

    May be called again for the same attempt: the answer is then "admitted" and nothing more is held. An attempt whose
    reservation was released gets no second one.
    """
    _locked(namespace)
    if Reservation.objects.filter(job=job, attempt=attempt).exists():
        return Verdict(admitted=True)
    verdict = decide(amounts, limits_of(namespace), reserved_in(namespace), namespace=namespace.name)
    if verdict.admitted:
        held = {resource: amounts[resource] for resource in HELD if amounts.get(resource)}
        Reservation.objects.create(namespace=namespace, job=job, attempt=attempt, amounts=held)
    return verdict


@transaction.atomic
def resize(*, namespace: Namespace, job: UUID, attempt: int, amounts: Amounts) -> Verdict:
    """Hold other amounts for an attempt that holds some, if what grows fits. For one that holds none this is nothing.

    Hours are counted with the amounts that are held last.
    """
    _locked(namespace)
    held = Reservation.objects.filter(job=job, attempt=attempt, released=None).first()
    if held is None:
        return Verdict(admitted=True)
    grown = {resource: amount for resource, amount in amounts.items() if amount > held.amounts.get(resource, 0)}
    others = Reservation.objects.filter(namespace=namespace, released=None).exclude(pk=held.pk)
    beside = total(others.values_list("amounts", flat=True))
    verdict = decide(grown, limits_of(namespace), beside, namespace=namespace.name)
    if verdict.admitted:
        held.amounts = {resource: amounts[resource] for resource in HELD if amounts.get(resource)}
        held.save(update_fields=["amounts"])
    return verdict


def release(*, job: UUID, attempt: int) -> bool:
    """Give back what the attempt holds. True for the one call that did it; any other changes nothing."""
    held = Reservation.objects.filter(job=job, attempt=attempt, released=None)
    return held.update(released=wall_clock()) == 1


def _locked(namespace: Namespace) -> None:
    """One decision at a time in a namespace. On SQLite the transaction is IMMEDIATE and so alone from its beginning."""
    Namespace.objects.select_for_update().get(pk=namespace.pk)


@transaction.atomic
def set_limits(
    *, actor: User, namespace: Namespace, limits: Mapping[str, Any], request: HttpRequest | None = None
) -> None:
    """Set some of a namespace's limits; null goes back to the default. What is held already stays held.

    Raises Forbidden for all but admins, ValidationFailed with a sentence a field.
    """
    require_admin(actor)
    _validate(limits)
    _locked(namespace)
    before = {resource: amount for resource, amount in limits_of(namespace).items() if resource in limits}
    for resource, amount in limits.items():
        _set(namespace, resource, amount)
    detail = {"before": before, "after": dict(limits)}
    audit.record("quota.set", namespace.name, actor=actor, namespace=namespace, detail=detail, request=request)


def _set(namespace: Namespace, resource: str, amount: float | None) -> None:
    if amount is None:
        Limit.objects.filter(namespace=namespace, resource=resource).delete()
    else:
        Limit.objects.update_or_create(namespace=namespace, resource=resource, defaults={"amount": amount})


def _validate(limits: Mapping[str, Any]) -> None:
    errors = {str(name): [sentence] for name, value in limits.items() if (sentence := _wrong_with(name, value))}
    if not limits:
        errors["limits"] = [f"Name at least one of: {', '.join(RESOURCES)}."]
    if errors:
        raise ValidationFailed(errors)


def _wrong_with(resource: str, amount: Any) -> str:
    """The sentence for a limit that cannot be; empty for one that can."""
    if resource not in RESOURCES:
        return f"There is no such resource. Choose from: {', '.join(RESOURCES)}."
    if amount is None:
        return ""
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount != amount:
        return "Write a number, or null for the default."
    if amount < 0:
        return "A limit cannot be below zero."
    if amount > LARGEST_LIMIT:
        return "That is more than any machine has. Write a smaller number, or null for the default."
    whole = resource in ("gpu", "jobs", "memory", "storage")
    return "Write a whole number." if whole and amount != int(amount) else ""
