"""Reconciliation of a PaddleJob: ``plan(job, observed, now) -> actions, status, requeue_after``. Pure.

Every decision follows from the observed objects; the status is the only memory. One pass does everything possible:

1. ``status.py`` decides whether the job has succeeded, failed, stalled, run too long or must restart.
2. ``children.py`` derives from the decision which objects to delete and which are missing.
3. The executor of the plan writes the status (comparing the version that was read) before the actions, if the status
   records a decision that the actions depend on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs.operator.decide import children, gang, kubelet_nudge, replacement
from jobs.operator.decide.status import Record, current_pods, next_record, stalled_at
from jobs.operator.decide.status_json import status_of
from jobs.operator.model import names
from jobs.operator.model.actions import Action
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, Settings
from jobs.operator.model.spec import PaddleJob, read

_POLL_SECONDS = 5.0  # seconds between passes while a foreign object has a name of the job: its deletion is not watched


@dataclass(frozen=True)
class Plan:
    """The result of a pass.

    ``status``: the status to write; None: unchanged. ``status_first``: the status records a decision that the actions
    depend on, and must be written before them; otherwise it only describes observed objects, and may be written with
    the next plan. ``requeue_after``: seconds until the next change that depends on time.
    """

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    status_first: bool = False
    requeue_after: float | None = None


def plan(item: Object, observed: Observed, now: datetime, settings: Settings | None = None) -> Plan:
    """Return the plan for the PaddleJob ``item``, as the API server returned it."""
    settings = settings or Settings()
    job = read(item)
    if job.run.managed_by != names.CONTROLLER:
        return Plan()
    now = now.replace(microsecond=0)  # the resolution of times in Kubernetes
    record = next_record(job, observed, now, settings)
    status = status_of(job, observed, record, now)
    return Plan(
        actions=tuple(children.actions(job, record, observed, now, settings)),
        status=status if status != job.status else None,
        status_first=record.memory != Record.of(job.status).memory,
        requeue_after=min((wait for wait in _waits(job, record, observed, now, settings)), default=None),
    )


def _waits(job: PaddleJob, record: Record, observed: Observed, now: datetime, settings: Settings) -> Iterator[float]:
    for moment in (*_moments(job, record, settings), *_moments_of_pods(job, record, observed, settings)):
        if moment is not None:
            yield max((moment - now).total_seconds(), 0.0)
    if observed.foreign:
        yield _POLL_SECONDS


def _moments(job: PaddleJob, record: Record, settings: Settings) -> Iterator[datetime | None]:
    if record.ended:
        yield children.ends_at(job, record)
        return
    yield record.not_before
    yield stalled_at(job, record)
    yield from replacement.due_times(job, record.counts, settings.replace_after)
    if record.start and job.run.active_deadline is not None:
        yield record.start + timedelta(seconds=job.run.active_deadline)
    limit = gang.timeout(job, settings)
    if record.holding_since and limit > 0:
        yield record.holding_since + timedelta(seconds=limit)


def _moments_of_pods(
    job: PaddleJob, record: Record, observed: Observed, settings: Settings
) -> Iterator[datetime | None]:
    if job.leaving:
        return
    yield from (children.given_up_at(pod, settings) for pod in observed.pods)
    if not record.ended:
        yield kubelet_nudge.due(current_pods(job, observed, record), observed.config_map)
