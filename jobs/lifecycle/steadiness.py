"""Running jobs in which nothing has changed since the sweep looked at them last. Pure.

To reconcile a job costs queries and milliseconds, a thousand jobs run at once, and most of them for hours without any
change. So the sweep reads of all of them what their next step depends on (``Reading``, a few columns in a constant
number of queries), and reconciles those in which that has changed. What depends on time alone (a pause before a
restart, the patience with a registration) occurs only in jobs that are not steady, which it reconciles each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from jobs.backends.base import AttemptView, Phase
from jobs.lifecycle.states import ENDED, JobState, ReplicaState

# A steady job is reconciled nevertheless so often, in case something depends on what is not read.
AT_LEAST_EVERY = timedelta(minutes=1)
_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING})


class ReplicaReading(NamedTuple):
    """The columns of a replica on which the job's next step depends."""

    name: str
    state: str
    start_number: int
    dismissed: bool
    rehearsed: bool
    why: str


@dataclass(frozen=True)
class Reading:
    """What the next step of a job in mid-run depends on. ``quiet``: nobody asks for anything (a cancellation, capacity
    that it borrowed, fault injection)."""

    state: JobState
    revision: int
    quiet: bool
    replicas: tuple[ReplicaReading, ...]
    view: AttemptView | None


def is_steady(reading: Reading) -> bool:
    """Whether the next step waits for a change: every replica that should run is registered and seen, no other is."""
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


class _Rest(NamedTuple):
    reading: Hashable
    until: datetime


class Watch:
    """The steady jobs, as one sweeping process has reconciled them. Empty at its start: all are reconciled then."""

    def __init__(self) -> None:
        self._resting: dict[UUID, _Rest] = {}

    def skips(self, job: UUID, reading: Reading, now: datetime) -> bool:
        """Whether the job was reconciled with the same reading, and no moment at which it changes has come since."""
        rest = self._resting.get(job)
        return rest is not None and now < rest.until and rest.reading == reading

    def reconciled(self, job: UUID, reading: Reading, now: datetime, deadline: Callable[[], datetime | None]) -> None:
        """The job was reconciled after ``reading`` was made. ``deadline``: when its timeout ends it."""
        if not is_steady(reading):
            self._resting.pop(job, None)
            return
        # Jobs that began together are not all reconciled in the same sweep.
        until = now + AT_LEAST_EVERY * (0.5 + (job.int % 1000) / 1000)
        self._resting[job] = _Rest(reading, min(until, deadline() or until))

    def keep_only(self, active: Collection[UUID]) -> None:
        """Forget the jobs that are not active any more."""
        for job in self._resting.keys() - set(active):
            del self._resting[job]
