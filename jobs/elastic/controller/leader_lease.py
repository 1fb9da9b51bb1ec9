"""Who decides: of several processes that could, one, for a term. What is written in a term is refused after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Q, QuerySet

from jobs.models import Elastic
from portal.common.rows import ensure

# A leader that says nothing for so long is followed by another.
LENGTH = timedelta(seconds=15)


class Term(NamedTuple):
    holder: str
    number: int


def lead(holder: str, now: datetime) -> Term | None:
    """The term in which this holder leads; None while another one does. By compare-and-set."""
    row = Elastic.objects.filter(pk=1).first()
    if row is None:
        ensure(Elastic, pk=1)
        row = Elastic.objects.get(pk=1)
    if row.holder == holder and row.until is not None and row.until > now:
        if row.until - now < LENGTH / 2 and not _mine(holder, row.term).update(until=now + LENGTH):
            return None
        return Term(holder, row.term)
    free = Elastic.objects.filter(Q(until=None) | Q(until__lte=now), pk=1, term=row.term)
    taken = free.update(holder=holder, term=F("term") + 1, until=now + LENGTH)
    return Term(holder, row.term + 1) if taken else None


def holds(term: Term, now: datetime) -> bool:
    """Whether the term goes on. Asked in the transaction of a write: nobody takes over before that is committed."""
    return _mine(*term).select_for_update().filter(until__gt=now).exists()


def resign(term: Term) -> None:
    """Let another one begin at once."""
    _mine(*term).update(until=None)


def note(term: Term, decisions: dict[str, dict[str, object]], now: datetime) -> None:
    """Keep what was decided, for those who look."""
    _mine(*term).update(told=decisions, decided=now)


def _mine(holder: str, number: int) -> QuerySet[Elastic]:
    return Elastic.objects.filter(pk=1, holder=holder, term=number)
