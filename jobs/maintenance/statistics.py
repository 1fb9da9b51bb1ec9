"""Gauges of jobs and streams, counted by the sweep: a scrape of ``/metrics`` makes no query."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, Min, Sum

from jobs.lifecycle.states import ACTIVE, JobState
from jobs.models import Job
from jobs.models.streams import StreamHead
from portal.common.clock import now as wall_clock
from portal.common.monitoring import metrics

EVERY = timedelta(seconds=10)


class Counted(NamedTuple):
    """Jobs of a state, and since when the one that changed first is in it."""

    jobs: int
    oldest: datetime | None


class Statistics:
    """Counts active jobs by state and unmerged blocks of open streams, in two aggregated queries every ``EVERY``.

    Ended jobs are counted by ``regatta_jobs_ended_total``, so the queries cost as much as there are active jobs.
    """

    def __init__(
        self, clock: Callable[[], datetime] = wall_clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._due: datetime | None = None
        self._counted = monotonic()
        self._oldest_queued: datetime | None = None
        metrics.computed(metrics.OLDEST_QUEUED, self._age_of_queue)
        metrics.computed(metrics.STATISTICS_AGE, lambda: monotonic() - self._counted)

    def when_due(self, now: datetime) -> None:
        """Count again if the last count is ``EVERY`` old."""
        if self._due is not None and now < self._due:
            return
        counts = jobs_by_state()
        for state in JobState:
            if state in ACTIVE:
                metrics.JOBS.labels(state).set(counts[state].jobs if state in counts else 0)
        self._oldest_queued = counts[JobState.QUEUED].oldest if JobState.QUEUED in counts else None
        metrics.UNSEALED_BLOCKS.set(unsealed_blocks())
        self._due, self._counted = now + EVERY, self._monotonic()

    def _age_of_queue(self) -> float:
        since = self._oldest_queued
        return max(0.0, (self._clock() - since).total_seconds()) if since else 0.0


def jobs_by_state() -> dict[JobState, Counted]:
    """Count the active jobs by state. States without a job are absent."""
    rows = Job.objects.filter(state__in=ACTIVE).order_by().values_list("state")
    counted = rows.annotate(jobs=Count("pk"), oldest=Min("changed"))
    return {JobState(state): Counted(jobs, oldest) for state, jobs, oldest in counted}


def unsealed_blocks() -> int:
    """Count the blocks of streams that were not merged yet."""
    # ``closed`` is the first column of the index: without it, the heads of all ended jobs would be read.
    heads = StreamHead.objects.filter(closed__in=(True, False), unsealed__gt=0).aggregate(total=Sum("unsealed"))
    return heads["total"] or 0
