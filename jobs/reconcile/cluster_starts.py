"""Starts that the cluster makes without the portal: granted in advance, and adopted afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from jobs.backends.base import AttemptRef, AttemptView, ClusterBackend, ReplacingBackend
from jobs.lifecycle import cluster_starts
from jobs.lifecycle.cluster_starts import Adoption
from jobs.lifecycle.replica_facts import RESTARTS, ReplicaFact, ending
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import ReplicaState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.reconcile import effects

# The columns of a replica's row at each start.
FRESH: Mapping[str, Any] = {
    "state": ReplicaState.WAITING,
    "why": "",
    "code": None,
    "signal": None,
    "out_of_memory": False,
    "heartbeat": None,
    "flushed": False,
    "dismissed": False,
    "rehearsed": False,
    "started": None,
    "registered": None,
    "finished": None,
    "incarnation": None,
    "held": None,
}


@transaction.atomic
def adopt(job: Job, attempt: Attempt, adoptions: Sequence[Adoption], now: datetime) -> None:
    """Write the starts of the cluster to the rows. Write nothing if another process has changed the job since."""
    if not Job.objects.filter(pk=job.pk, revision=job.revision).update(revision=F("revision") + 1):
        return
    for adoption in adoptions:
        lost = adoption.lost
        row = Replica.objects.filter(attempt=attempt, name=lost.name, start_number=lost.start_number)
        if row.update(start_number=adoption.start_number, restarts=adoption.restarts, **_columns(adoption, now)):
            _record(job, adoption, now)
    effects.publish(job)


def _columns(adoption: Adoption, now: datetime) -> Mapping[str, Any]:
    if not adoption.refused:
        return FRESH
    lost = adoption.lost
    return {"state": lost.state, "why": lost.why, "finished": lost.finished or now}


def _record(job: Job, adoption: Adoption, now: datetime) -> None:
    how = f"{adoption.restarts} of {RESTARTS[adoption.lost.role]}"
    message = messages.REPLACEMENT_REFUSED if adoption.refused else messages.REPLACED_BY_CLUSTER
    values = {"ending": ending(adoption.lost)} | ({} if adoption.refused else {"why": how})
    JobEvent.objects.create(
        job=job,
        attempt=job.attempt,
        at=now,
        replica=adoption.lost.name,
        kind="exited" if adoption.refused else "restarted",
        text=message(**values),
    )


def adopt_after_restore(row: Replica, start_number: int) -> Replica:
    """Take over a start of the replica that the database does not know, since it was restored to an earlier state."""
    Replica.objects.filter(pk=row.pk, start_number__lt=start_number).update(start_number=start_number, **FRESH)
    row.refresh_from_db()
    return row


def grant(
    backend: ClusterBackend, ref: AttemptRef, job: JobView, replicas: Sequence[ReplicaFact], view: AttemptView
) -> None:
    """Grant starts in advance where the backend has other ones. Every turn compares them again."""
    if isinstance(backend, ReplacingBackend):
        limits = cluster_starts.limits(job, replicas, view, settings.SPARE_STARTS)
        if limits:
            backend.grant_starts(ref, limits)
