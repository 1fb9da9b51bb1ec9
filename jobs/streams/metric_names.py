"""Metric names of each job, at most ``settings.METRIC_NAMES``.

A name is a curve: an index in every block, a row of every chart, an entry of every menu. A program that writes
``loss_<step>`` makes as many names as it has steps. Called under the lock of the head of the job's metrics.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import replace

import numpy as np
from django.conf import settings
from django.db import transaction

from jobs.messages import jobs as messages
from jobs.models import Attempt, JobEvent
from jobs.models.streams import MetricNames
from jobs.streams.block_codec import Points
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.rows import ensure

EVENT = "metrics"
_CACHED_JOBS = 1000


class _Cache:
    """Committed names of the jobs that wrote last. An append of cached names makes no query of the table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: OrderedDict[uuid.UUID, frozenset[str]] = OrderedDict()

    def of(self, job_id: uuid.UUID) -> frozenset[str]:
        with self._lock:
            return self._names.get(job_id, frozenset())

    def put(self, job_id: uuid.UUID, names: frozenset[str]) -> None:
        with self._lock:
            self._names[job_id] = names
            self._names.move_to_end(job_id)
            while len(self._names) > _CACHED_JOBS:
                self._names.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._names.clear()


_cache = _Cache()


def forget() -> None:
    """Empty the cache of this process."""
    _cache.clear()


def admitted(attempt: Attempt, points: Points) -> tuple[Points, str]:
    """Return the points whose names are admitted, and a message for the log when a name is first refused.

    Returns the same object if no point is left out. New names are stored in the current transaction.
    """
    job_id = attempt.job_id
    if _cache.of(job_id).issuperset(points.keys):
        return points, ""
    row = _row(job_id)
    known = frozenset(row.names)
    fresh = [key for key in dict.fromkeys(points.keys) if key not in known]
    taken = fresh[: max(0, settings.METRIC_NAMES - len(known))]
    if taken:
        known |= set(taken)
        MetricNames.objects.filter(pk=row.pk).update(names=[*row.names, *taken])
    transaction.on_commit(lambda: _cache.put(job_id, known))
    if len(taken) == len(fresh):
        return points, ""
    message = "" if row.refused else _refuse(attempt, fresh[len(taken)])
    return _only(points, known), message


def _row(job_id: uuid.UUID) -> MetricNames:
    row = MetricNames.objects.filter(job_id=job_id).first()
    if row is None:
        ensure(MetricNames, job_id=job_id)
        row = MetricNames.objects.get(job_id=job_id)
    return row


def _refuse(attempt: Attempt, name: str) -> str:
    """Record on the job's timeline that further names are left out; return the message, which the log gets too."""
    message = messages.METRIC_NAMES_FULL(count=settings.METRIC_NAMES, name=name)
    MetricNames.objects.filter(job_id=attempt.job_id).update(refused=True)
    JobEvent.objects.create(job_id=attempt.job_id, attempt=attempt.number, at=wall_clock(), kind=EVENT, text=message)
    ring(f"status:{attempt.job_id}")
    return message


def _only(points: Points, names: frozenset[str]) -> Points:
    """Return the points with one of the names; the table of names in the result has no others."""
    kept = [place for place, key in enumerate(points.keys) if key in names]
    places = np.full(len(points.keys), -1, np.int64)
    places[kept] = np.arange(len(kept))
    key = places[points.key]
    chosen = key >= 0
    return replace(
        points,
        times=points.times[chosen],
        steps=points.steps[chosen],
        values=points.values[chosen],
        key=key[chosen].astype(np.uint16),
        source=points.source[chosen],
        keys=tuple(points.keys[place] for place in kept),
    )
