"""Leader election of elastic controllers: one of several processes leads for a term. Writes after it are refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Q, QuerySet

from jobs.models import Elastic
from portal.common.rows import ensure

# The lease of a leader. Another process may take over if it is not renewed for so long.
LENGTH = timedelta(seconds=15)


class Term(NamedTuple):
    holder: str
    number: int


def lead(holder: str, now: datetime) -> Term | None:
    """Acquire or renew the lease by compare-and-set. Return the term, or None while another holder leads."""
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
    """Whether the term has not ended.

    Call it in the transaction of a write: it locks the lease, so that no other process takes over before the commit.
    """
    return _mine(*term).select_for_update().filter(until__gt=now).exists()


def resign(term: Term) -> None:
    """End the term, so that another process may lead at once."""
    _mine(*term).update(until=None)


def note(term: Term, decisions: dict[str, dict[str, object]], now: datetime) -> None:
    """Store the decisions for pages, if the term has not been taken over."""
    _mine(*term).update(decisions=decisions, decided=now)


def _mine(holder: str, number: int) -> QuerySet[Elastic]:
    return Elastic.objects.filter(pk=1, holder=holder, term=number)
