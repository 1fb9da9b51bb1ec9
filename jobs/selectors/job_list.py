"""The job list of the pages: active jobs first, then newest first, in pages and filtered by the URL's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Case, IntegerField, QuerySet, Value, When

from jobs.lifecycle.states import ACTIVE, TERMINAL
from jobs.models import Job
from portal.common import pagination
from portal.common.errors import ValidationFailed
from portal.common.pagination import paginate
from rbac.models import Namespace, User

PAGE = 50
_ACTIVE = "active"
_NAMES = ("q", "owner", "state")
_ORDER = ("ended", "-created", "-id")


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
    rows = _with_ended(_filtered(namespace, actor, filters)).select_related("owner")
    try:
        found = _page(rows, cursor)
    except ValidationFailed:
        found = _page(rows, "")
    return Page(found["results"], found["next"] or "")


def _page(rows: QuerySet[Job], cursor: str) -> pagination.Page:
    return paginate(rows, {"limit": str(PAGE), "cursor": cursor}, order=_ORDER, render=lambda job: job)


def _filtered(namespace: Namespace, actor: User, filters: Filters) -> QuerySet[Job]:
    rows = Job.objects.filter(namespace=namespace)
    if filters.owner == "me":
        rows = rows.filter(owner=actor)
    if filters.q:
        rows = rows.filter(name__icontains=filters.q)
    if filters.state:
        rows = rows.filter(state__in=ACTIVE if filters.state == _ACTIVE else [filters.state])
    return rows


def _with_ended(rows: QuerySet[Job]) -> QuerySet[Any]:
    ended = Case(When(state__in=list(TERMINAL), then=Value(1)), default=Value(0), output_field=IntegerField())
    return rows.annotate(ended=ended)
