"""The job list of the pages: active jobs first, then newest first, in pages and filtered by the URL's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from jobs.lifecycle.states import ACTIVE, TERMINAL
from jobs.models import Job
from rbac.models import Namespace, User

PAGE = 50
_ACTIVE = "active"
_NAMES = ("q", "owner", "state")


@dataclass(frozen=True)
class Filters:
    """Filters in the URL. ``owner``: ``me`` or ``all``; ``state``: empty, ``active``, or a terminal state."""

    q: str = ""
    owner: str = "me"
    state: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """Read the filters from a URL's query; unknown values are ignored."""
        state = query.get("state", "")
        return cls(
            q=query.get("q", "").strip()[:100],
            owner="all" if query.get("owner") == "all" else "me",
            state=state if state in {_ACTIVE, *TERMINAL} else "",
        )

    @property
    def narrow(self) -> bool:
        """Whether a filter other than the owner can be the cause of an empty list."""
        return bool(self.q or self.state)

    def address(self, **more: str) -> str:
        """Return the URL's query for these filters."""
        return urlencode({name: getattr(self, name) for name in _NAMES if getattr(self, name)} | more)


@dataclass(frozen=True)
class Page:
    """``older`` is the cursor of the next page, empty on the last one."""

    jobs: list[Job]
    older: str


def page_of(namespace: Namespace, actor: User, filters: Filters, cursor: str = "") -> Page:
    """Return one page of the namespace's jobs; an invalid cursor gives the first page."""
    rows = _ordered(_filtered(namespace, actor, filters))
    after = _read(cursor)
    if after is not None:
        rows = rows.filter(_behind(*after))
    jobs = list(rows.select_related("owner")[: PAGE + 1])
    return Page(jobs[:PAGE], _cursor(jobs[PAGE - 1]) if len(jobs) > PAGE else "")


def _filtered(namespace: Namespace, actor: User, filters: Filters) -> QuerySet[Job]:
    rows = Job.objects.filter(namespace=namespace)
    if filters.owner == "me":
        rows = rows.filter(owner=actor)
    if filters.q:
        rows = rows.filter(name__icontains=filters.q)
    if filters.state:
        rows = rows.filter(state__in=ACTIVE if filters.state == _ACTIVE else [filters.state])
    return rows


def _ordered(rows: QuerySet[Job]) -> QuerySet[Any]:
    ended = Case(When(state__in=list(TERMINAL), then=Value(1)), default=Value(0), output_field=IntegerField())
    return rows.annotate(ended=ended).order_by("ended", "-created", "-id")


def _behind(ended: int, created: datetime, job_id: UUID) -> Q:
    """Return the condition for rows after the given position in the order of the list."""
    return Q(ended__gt=ended) | Q(ended=ended, created__lt=created) | Q(ended=ended, created=created, id__lt=job_id)


def _cursor(job: Any) -> str:
    return f"{job.ended}~{job.created.isoformat()}~{job.pk}"


def _read(cursor: str) -> tuple[int, datetime, UUID] | None:
    try:
        ended, created, job_id = cursor.split("~")
        return int(ended), datetime.fromisoformat(created), UUID(job_id)
    except ValueError:
        return None
