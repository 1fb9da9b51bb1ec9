"""Pagination: ``{"results": [...], "next": cursor or null}``, the same for every list of the API.

A cursor holds the ordering values of the last row of a page. Rows that are added or removed in between neither repeat
nor hide others. It is opaque to the caller: base64 of a JSON list.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.core.exceptions import ValidationError as FieldError
from django.db import DataError
from django.db.models import Model, Q, QuerySet
from drf_spectacular.utils import OpenApiParameter

from portal.common.errors import ValidationFailed
from portal.common.messages import requests as messages

Row = TypeVar("Row", bound=Model)
DEFAULT_LIMIT = 50
LARGEST_LIMIT = 500
# How the API document describes them.
PARAMETERS = (
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": LARGEST_LIMIT, "default": DEFAULT_LIMIT}),
    OpenApiParameter("cursor", str, description="The `next` of the page before."),
)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_BAD_CURSOR = messages.CURSOR_INVALID()


class Page(TypedDict):
    results: list[Any]
    next: str | None


def paginate(
    queryset: QuerySet[Row], query: Mapping[str, str], *, order: Sequence[str], render: Callable[[Row], Any]
) -> Page:
    """Return one page of a list.

    ``query`` is the request's query string (``limit``, ``cursor``). ``order`` are field names, ``-`` for descending;
    the last must be unique, none may be null. Raises ValidationFailed for an invalid limit or cursor.
    """
    limit = _limit(query.get("limit"))
    found = _rows(queryset.order_by(*order), query.get("cursor"), order, limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    return Page(results=[render(row) for row in shown], next=_cursor_of(shown[-1], order) if more else None)


def _limit(raw: str | None) -> int:
    if raw is None:
        return DEFAULT_LIMIT
    if not _NUMBER.fullmatch(raw) or not 1 <= int(raw) <= LARGEST_LIMIT:
        raise ValidationFailed({"limit": [messages.LIMIT_INVALID(most=LARGEST_LIMIT)]})
    return int(raw)


def _rows(rows: QuerySet[Row], cursor: str | None, order: Sequence[str], count: int) -> list[Row]:
    if not cursor:
        return list(rows[:count])
    try:
        return list(_after(rows, order, _values_of(cursor, len(order)))[:count])
    except (ValueError, TypeError, OverflowError, DataError, FieldError, FieldDoesNotExist):
        raise ValidationFailed({"cursor": [_BAD_CURSOR]}) from None


def _after(rows: QuerySet[Row], order: Sequence[str], values: Sequence[Any]) -> QuerySet[Row]:
    """Return the rows after the cursor: (a, b) > (x, y) is a > x, or a = x and b > y."""
    beyond, equal = Q(), Q()
    for key, value in zip(order, values, strict=True):
        name, operator = key.lstrip("-"), "lt" if key.startswith("-") else "gt"
        beyond |= equal & Q(**{f"{name}__{operator}": value})
        equal &= Q(**{name: value})
    return rows.filter(beyond)


def _cursor_of(row: Model, order: Sequence[str]) -> str:
    values = [_plain(_follow(row, key.lstrip("-"))) for key in order]
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _follow(row: Any, path: str) -> Any:
    for part in path.split("__"):
        row = getattr(row, part)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, int | float | str) else str(value)


def _values_of(cursor: str, wanted: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) != wanted or any(isinstance(v, dict | list) for v in values):
        raise ValidationFailed({"cursor": [_BAD_CURSOR]})
    for value in values:
        _reach(value)
    return values


def _reach(value: Any) -> None:
    """Raise OverflowError for a moment that the calendar has in its own time zone but not in UTC."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return
    if at is not None and at.tzinfo is not None:
        at.astimezone(UTC)
