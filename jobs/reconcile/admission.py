"""Admission of waiting jobs in batches.

The quota makes one decision for all waiting jobs (``ledger.review``, ``ledger.admit``). Each job that may start takes
its own step (``state_machine.step``). One transaction writes up to ``ledger.MOST_AT_ONCE`` jobs by compare-and-set,
each with its Transition, reservation and attempt. A job that another process has changed meanwhile keeps its state and
gets no reservation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from jobs.lifecycle.state_machine import QuotaReserved
from jobs.lifecycle.states import JobState
from jobs.models import Job
from jobs.reconcile import effects, reconciler
from jobs.reconcile.reconciler import Loaded, Waiter, Written
from jobs.selectors import admission as quota_questions
from jobs.selectors import elastic_jobs
from quota import ledger, policy
from quota.ledger import Answer, ReservationRequest, Review
from quota.models import Claim
from quota.selectors import Key, claims_of

_log = logging.getLogger(__name__)

# Explanations name the free capacity, which changes with every start and end of a job. When the review covers more than
# MANY jobs, explanations are written only once per EXPLAIN_EVERY.
EXPLAIN_EVERY, MANY = timedelta(seconds=5), 200
_CHUNK = 500
_T = TypeVar("_T")


class Explanations:
    """Rate limit of the explanations that one sweeping process writes."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def are_due(self, waiting: int, now: datetime) -> bool:
        """Return whether to write explanations now, given the number of waiting jobs.

        If so, the next time is EXPLAIN_EVERY later.
        """
        if waiting > MANY and self._next is not None and now < self._next:
            return False
        self._next = now + EXPLAIN_EVERY
        return True


def admit_waiting(now: datetime, explanations: Explanations) -> list[UUID]:
    """Create the missing claims of waiting jobs, admit the jobs whose turn it is, and explain the wait of the others.

    Return the jobs to reconcile next, in order: the admitted jobs and, for a batch that failed, the jobs that could
    start. Each of the latter may be admitted on its own.
    """
    waiting = Job.objects.filter(state=JobState.QUEUED, cancel_requested=None)
    if not waiting.exists():
        return []
    _claim(waiting, now)
    seen = ledger.review(now, least=elastic_jobs.least_held())
    movable = [job for claims in seen.groups() for job in _admit(claims, seen, now)]
    if explanations.are_due(len(seen.decision.looked_at.waiting), now):
        _explain(waiting, seen, now)
    return movable


# --- Claims ----------------------------------------------------------------------------------------------------------
def _claim(waiting: QuerySet[Job], now: datetime) -> None:
    unclaimed = waiting.exclude(Exists(claims_of(OuterRef("pk"), OuterRef("attempt"))))
    for chunk in _chunks(list(unclaimed.order_by("created").values_list("pk", flat=True))):
        with transaction.atomic():
            # A concurrent cancellation waits for the row, and then finds the claim.
            rows = unclaimed.filter(pk__in=chunk).select_related("namespace", "owner").select_for_update(of=("self",))
            requests = ((job.namespace, _reservation_request(job)) for job in rows)
            ledger.queue_up([(namespace, request) for namespace, request in requests if request is not None], now)


def _reservation_request(job: Job) -> ReservationRequest | None:
    """Return the request of the job to the quota, or None if it cannot be computed.

    The error is logged and does not delay the other jobs.
    """
    try:
        return quota_questions.reservation_request(job)
    except Exception:  # noqa: BLE001  any error concerns this job alone
        _log.exception("Job %s cannot be admitted; the next sweep tries again.", job.pk)
        return None


# --- Admissions ------------------------------------------------------------------------------------------------------
def _admit(claims: Sequence[policy.Claim], seen: Review, now: datetime) -> list[UUID]:
    """Admit in batches until no job is left that could start. Return the jobs in order."""
    admitted: list[UUID] = []
    more = True
    while more:
        batch: list[Written] = []
        try:
            with transaction.atomic():
                found = ledger.admit(claims, partial(_take, batch, now), now)
                _open(batch)
        except Exception:  # noqa: BLE001  one job of the batch must not block the others
            _log.exception("A batch of jobs could not be admitted; they are admitted one by one.")
            keys = {claim.key for claim in claims}
            return admitted + [key[0] for key in seen.granted if key in keys]
        admitted += [each.loaded.job.pk for each in batch]
        claims, more = found.left, found.more
    return admitted


def _take(batch: list[Written], now: datetime, claims: Sequence[Claim]) -> Answer:
    """Write the admission of each job that still waits and whose request equals its claim. Append them to ``batch``."""
    jobs = _load(claim.job for claim in claims)
    moves, stale = [], set[Key]()
    for claim in claims:
        loaded = jobs.get(claim.job)
        if loaded is None or loaded.view.state is not JobState.QUEUED or loaded.view.attempt != claim.attempt:
            stale.add((claim.job, claim.attempt))
        elif loaded.job.cancel_requested is None and _is_as_claimed(claim, loaded.job):
            moves.append((loaded, QuotaReserved(claim.attempt)))
    batch += reconciler.write_together(moves, now)
    return Answer(frozenset((each.loaded.job.pk, each.loaded.view.attempt) for each in batch), frozenset(stale))


def _is_as_claimed(claim: Claim, job: Job) -> bool:
    """Return whether the request of the job equals its claim. If not, renew the claim for another decision."""
    request = _reservation_request(job)
    return request is not None and not ledger.renew(claim, request)


def _load(jobs: Iterable[UUID]) -> Mapping[UUID, Loaded]:
    """Load waiting jobs, by id. They have neither attempt nor replicas."""
    rows = Job.objects.filter(pk__in=list(jobs)).select_related("namespace", "owner", "cancelled_by")
    return {job.pk: Loaded(job, reconciler.view_of(job, None), None, ()) for job in rows}


def _open(batch: Sequence[Written]) -> None:
    """Commit the immediate effects of a batch that has its reservations."""
    for each in batch:
        effects.grow_to_requested(each.loaded.job)
    effects.commit_together([(effect, each.loaded.job) for each in batch for effect in each.outcome.effects])


# --- Explanations ----------------------------------------------------------------------------------------------------
def _explain(waiting: QuerySet[Job], seen: Review, now: datetime) -> None:
    """Write the reason for waiting of each job whose reason has changed."""
    behind = quota_questions.waiting(seen.behind)
    reasons = seen.reasons
    columns = ("pk", "attempt", "revision", "why", "changed", "namespace__name")
    rows = list(map(Waiter._make, waiting.order_by("created").values_list(*columns)))
    refusals = []
    for waiter in rows:
        key = (waiter.job, waiter.attempt)
        why = quota_questions.waiting(reasons[key]) if key in reasons else behind
        if key not in seen.decision.found.granted and waiter.why != why:
            refusals.append((waiter, why))
    for chunk in _chunks(refusals):
        changed = reconciler.explain_together(chunk, now)
        effects.publish_together([(waiter.job, waiter.namespace) for waiter in changed])


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK))
