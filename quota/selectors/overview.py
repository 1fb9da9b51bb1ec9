"""Lists for admins: namespaces, and requests for more quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, QuerySet

from portal.common.pagination import Page, paginate
from quota.models import Claim, Limit, QuotaRequest, Reservation
from quota.resources import Amounts, total
from quota.selectors.limits import with_defaults
from rbac.models import Namespace


def quota_requests(**filters: Any) -> QuerySet[QuotaRequest]:
    """Return requests for more quota, with the related rows that pages show."""
    return QuotaRequest.objects.filter(**filters).select_related("namespace", "asker", "answered_by")


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
            "limits": with_defaults(own.get(namespace.pk, {})),
            "running": len(held.get(namespace.pk, [])),
            "waiting": waiting.get(namespace.pk, 0),
        }
        for namespace in shown
    ]
    return Page(results=rows, next=page["next"])
