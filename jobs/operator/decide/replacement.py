"""Replacement of lost pods by the controller itself, within ``spec.maxStarts``. Pure.

The creator of a job with ``spec.starts`` decides about restarts. While it cannot, as the portal without its database,
a lost pod would stay away. ``spec.maxStarts`` grants starts in advance. A place is lost when its last allowed pod was
deleted or is being deleted, or has failed for a reason that the failure policy restarts. The controller waits first,
so that a creator that is up decides, and then grants the next start. The status records the grant before the pod is
created, with the version of the job that was read: a job that was stopped since gets no grant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.kubernetes_objects import pod_names
from jobs.operator.model import names
from jobs.operator.model.conditions import moment_of, written
from jobs.operator.model.failure_policy import Verdict, failure_of, judge
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, is_finished, phase_of
from jobs.operator.model.spec import PaddleJob, Role

_LONGEST = 300.0  # seconds


@dataclass(frozen=True)
class Starts:
    """Starts of the places of a job.

    ``made``: the highest start number of a pod of each place. ``granted``: the highest start that the controller has
    granted itself. ``lost``: times since when places have been without a pod, as in the status.
    """

    made: Mapping[str, int]
    granted: Mapping[str, int]
    lost: Mapping[str, str]

    def allowed(self, job: PaddleJob, role: str, index: int) -> int:
        """Return the highest start number that a pod of the place may have now."""
        return max(job.starts_of(role, index), self.granted.get(pod_names.place(role, index), 0))


def updated(job: PaddleJob, observed: Observed, starts: Starts, now: datetime, patience: float) -> Starts:
    """Return the starts with the grants that are due, and the times of the losses.

    ``patience``: seconds from the loss of a place to its grant; doubled with each grant that ``spec.starts`` does not
    include yet.
    """
    granted, lost = dict(starts.granted), dict[str, str]()
    for name, role, index in _replaceable(job, observed, starts):
        place = pod_names.place(role.name, index)
        since = starts.lost.get(place) or written(now)
        if name in observed.pods_by_name and names.is_leaving(observed.pods_by_name[name]):
            lost[place] = since  # the next pod needs its name
        elif now < _due(job, starts, place, since, patience):
            lost[place] = since
        else:
            granted[place] = starts.allowed(job, role.name, index) + 1
    return Starts(starts.made, granted, lost)


def due_times(job: PaddleJob, starts: Starts, patience: float) -> Iterator[datetime]:
    """Yield the times of the next grants of lost places."""
    for place, since in starts.lost.items():
        yield _due(job, starts, place, since, patience)


def _replaceable(job: PaddleJob, observed: Observed, starts: Starts) -> Iterator[tuple[str, Role, int]]:
    """Yield the lost places that have a start left."""
    if not job.max_starts:
        return
    ending = _is_ending(job, observed)
    for name, role, index in job.pod_names():
        place = pod_names.place(role.name, index)
        made, allowed = starts.made.get(place, 0), starts.allowed(job, role.name, index)
        if made < allowed or allowed >= job.max_starts.get(place, 0) or ("Pod", name) in observed.foreign:
            continue
        if ending and role.name in job.success.roles:
            continue  # there is nothing left to do for it
        if _is_lost(job, role, observed.pods_by_name.get(name)):
            yield name, role, index


def _is_lost(job: PaddleJob, role: Role, pod: Object | None) -> bool:
    if pod is None:
        return True
    return restarts(job, role.name, pod) if is_finished(pod) else names.is_leaving(pod)


def restarts(job: PaddleJob, role: str, pod: Object) -> bool:
    """Whether the pod failed for a reason that the job's failure policy, or that of all jobs, restarts."""
    if phase_of(pod) != "Failed":
        return False
    return judge(failure_of(pod, role), job.failure_rules, 0, job.run.backoff_limit) is not Verdict.FAIL


def _is_ending(job: PaddleJob, observed: Observed) -> bool:
    """Whether a pod that counts for the success of the job has ended by itself."""
    for name, role, _ in job.pod_names():
        pod = observed.pods_by_name.get(name) if role.name in job.success.roles else None
        if pod is not None and is_finished(pod) and not restarts(job, role.name, pod):
            return True
    return False


def _due(job: PaddleJob, starts: Starts, place: str, since: str, patience: float) -> datetime:
    role, _, index = place.rpartition("-")
    unconfirmed = max(0, starts.granted.get(place, 0) - job.starts_of(role, int(index)))
    lost = moment_of(since)
    assert lost is not None  # noqa: S101  the status has only times
    return lost + timedelta(seconds=min(_LONGEST, patience * 2.0 ** min(unconfirmed, 16)))
