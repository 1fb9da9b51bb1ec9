"""Detection of running jobs that have not changed since the last sweep. Pure.

Reconciling a job costs queries and milliseconds. A thousand jobs can run at once, most of them for hours without any
change. So the sweep reads, for all jobs in a constant number of queries, the columns on which the next step depends
(``Reading``), and reconciles only the jobs whose reading has changed. Steps that depend on time alone (the delay before
a restart, the registration timeout) occur only in jobs that are not steady; the sweep reconciles those each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from jobs.backends.base import AttemptView, Phase
from jobs.lifecycle.states import ENDED, JobState, ReplicaState

# Interval at which a steady job is reconciled all the same, in case a step depends on columns that are not read.
AT_LEAST_EVERY = timedelta(minutes=1)
_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING})


class ReplicaReading(NamedTuple):
    """Columns of a replica on which the job's next step depends."""

    name: str
    state: str
    start_number: int
    dismissed: bool
    rehearsed: bool
    why: str


@dataclass(frozen=True)
class Reading:
    """Inputs on which the next step of a running job depends.

    ``quiet``: no request is pending (a cancellation, the return of borrowed capacity, fault injection).
    """

    state: JobState
    revision: int
    quiet: bool
    replicas: tuple[ReplicaReading, ...]
    view: AttemptView | None


def is_steady(reading: Reading) -> bool:
    """Return whether the next step waits for a change.

    That is so when each desired replica is registered and observed by the backend, and no other replica runs.
    """
    view = reading.view
    if reading.state is not JobState.RUNNING or not reading.quiet or view is None or view.gone:
        return False
    seen = {replica.name: replica for replica in view.replicas}
    for row in reading.replicas:
        found = seen.pop(row.name, None)
        alive = found is not None and found.phase in _ALIVE
        if row.dismissed and (alive or row.state not in ENDED):
            return False
        if not row.dismissed:
            current = found is not None and found.start_number == row.start_number
            if not (alive and current) or row.state != ReplicaState.REGISTERED or row.rehearsed:
                return False
    return all(replica.phase not in _ALIVE for replica in seen.values())


class _Steady(NamedTuple):
    reading: Hashable
    until: datetime


class Watch:
    """Steady jobs of one sweeping process. Empty when the process starts, so the first sweep reconciles all jobs."""

    def __init__(self) -> None:
        self._steady: dict[UUID, _Steady] = {}

    def skips(self, job: UUID, reading: Reading, now: datetime) -> bool:
        """Return whether the job was reconciled with an equal reading and its deadline has not passed since."""
        steady = self._steady.get(job)
        return steady is not None and now < steady.until and steady.reading == reading

    def reconciled(self, job: UUID, reading: Reading, now: datetime, deadline: Callable[[], datetime | None]) -> None:
        """Record that the job was reconciled after ``reading`` was taken. ``deadline`` returns its timeout's end."""
        if not is_steady(reading):
            self._steady.pop(job, None)
            return
        # Spread by job id: jobs that started together are not all reconciled in the same sweep.
        until = now + AT_LEAST_EVERY * (0.5 + (job.int % 1000) / 1000)
        self._steady[job] = _Steady(reading, min(until, deadline() or until))

    def keep_only(self, active: Collection[UUID]) -> None:
        """Remove all jobs that are not in ``active``."""
        for job in self._steady.keys() - set(active):
            del self._steady[job]
