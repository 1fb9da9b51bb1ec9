"""Pages of a job's timeline: state changes and events of all attempts, in order of time.

A page holds the newest entries before a cursor, so its cost does not grow with the timeline. The order is by time, then
table, then row: a cursor stays valid when entries are added.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Model, Q, QuerySet

from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Transition
from portal.common.errors import ValidationFailed

PAGE = 500
MOST = 1000
_CURSOR = re.compile(r"([0-9]{1,18})-([01])-([0-9]{1,18})", re.ASCII)
_BAD_CURSOR = messages.TIMELINE_CURSOR_INVALID()
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CHANGE, _EVENT = 0, 1


class Place(NamedTuple):
    """Position of an entry in the timeline."""

    at: datetime
    table: int
    row: int

    @classmethod
    def parse(cls, cursor: str) -> Place:
        """Parse a cursor. Raises ValidationFailed."""
        match = _CURSOR.fullmatch(cursor)
        try:
            at = _BEGINNING + int(match[1]) * _MICROSECOND if match else None
        except OverflowError:
            at = None
        if match is None or at is None:
            raise ValidationFailed({"before": [_BAD_CURSOR]})
        return cls(at, int(match[2]), int(match[3]))

    def __str__(self) -> str:
        return f"{(self.at - _BEGINNING) // _MICROSECOND}-{self.table}-{self.row}"


class Page(NamedTuple):
    """Entries, oldest first. ``older`` is the cursor of the page with older entries, or None."""

    entries: list[dict[str, Any]]
    older: str | None


def page_of(job: Job, *, before: str = "", limit: int = PAGE) -> Page:
    """Return the newest ``limit`` entries, before the cursor if given. Raises ValidationFailed for a bad cursor."""
    end = Place.parse(before) if before else None
    changes = _newest(Transition.objects.filter(job=job).select_related("actor"), _CHANGE, end, limit + 1)
    events = _newest(JobEvent.objects.filter(job=job), _EVENT, end, limit + 1)
    found = [(Place(row.at, _CHANGE, row.pk), _change_json(row)) for row in changes]
    found += [(Place(row.at, _EVENT, row.pk), _event_json(row)) for row in events]
    found.sort(key=lambda entry: entry[0])
    shown = found[-limit:]
    older = str(shown[0][0]) if len(found) > len(shown) else None
    return Page([{"id": str(place), **entry} for place, entry in shown], older)


def _newest(rows: QuerySet[Any], table: int, before: Place | None, count: int) -> list[Any]:
    if before is not None:
        earlier = Q(at__lt=before.at)
        if table < before.table:
            earlier |= Q(at=before.at)
        elif table == before.table:
            earlier |= Q(at=before.at, pk__lt=before.row)
        rows = rows.filter(earlier)
    found: list[Model] = list(rows.order_by("-at", "-pk")[:count])
    return found


def _change_json(change: Transition) -> dict[str, Any]:
    return {
        "time": change.at.isoformat(),
        "attempt": change.attempt,
        "kind": "state",
        "state": change.state,
        "reason": change.reason,
        "replica": "",
        "text": change.why,
        "actor": change.actor.username if change.actor else "",
    }


def _event_json(event: JobEvent) -> dict[str, Any]:
    return {
        "time": event.at.isoformat(),
        "attempt": event.attempt,
        "kind": event.kind,
        "state": "",
        "reason": "",
        "replica": event.replica,
        "text": event.text,
        "actor": "",
    }
