"""Queries of the audit log: filters, and rows as a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet

from rbac.models import AuditEntry, Outcome

# The parameters of an address; all match exactly except those of ``_PARTS``.
FILTERS = ("actor", "action", "namespace", "target", "outcome", "since", "until", "q")
_FIELDS: Mapping[str, str] = {
    "actor": "actor__username",
    "action": "action__startswith",
    "namespace": "namespace",
    "target": "target",
    "outcome": "outcome",
}
COLUMNS = (
    *("time", "actor", "acting_admin", "address", "action", "target", "namespace", "outcome"),
    *("reason", "before", "after", "detail", "request_id"),
)


def filters_in(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of an address that have a value; invalid ones are ignored."""
    found = {name: query.get(name, "").strip()[:200] for name in FILTERS}
    if found["outcome"] not in Outcome.values:
        found["outcome"] = ""
    for name in ("since", "until"):
        found[name] = found[name] if _day(found[name]) else ""
    return {name: text for name, text in found.items() if text}


def address(filters: Mapping[str, str]) -> str:
    """Return the query string of the address with these filters."""
    return urlencode(filters)


def entries(filters: Mapping[str, str]) -> QuerySet[AuditEntry]:
    """Return the rows that match the filters, newest first, with the related rows that a page shows."""
    rows = AuditEntry.objects.select_related("actor", "impersonator").order_by("-at", "-id")
    rows = rows.filter(**{_FIELDS[name]: text for name, text in filters.items() if name in _FIELDS})
    if since := _day(filters.get("since", "")):
        rows = rows.filter(at__gte=since)
    if until := _day(filters.get("until", "")):
        rows = rows.filter(at__lt=until + timedelta(days=1))
    if part := filters.get("q", ""):
        rows = rows.filter(Q(target__icontains=part) | Q(reason__icontains=part) | Q(request_id=part))
    return rows


def _day(text: str) -> datetime | None:
    """Return the beginning of a day in the form 2026-01-31, in UTC."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if 1970 <= day.year < 9999 else None


def cells(row: AuditEntry) -> tuple[Any, ...]:
    """Return one row in the order of ``COLUMNS``."""
    return (
        row.at.isoformat(),
        row.actor.username if row.actor else "",
        row.impersonator.username if row.impersonator else "",
        row.address or "",
        row.action,
        row.target,
        row.namespace,
        row.outcome,
        row.reason,
        row.before or "",
        row.after or "",
        row.detail or "",
        row.request_id,
    )
