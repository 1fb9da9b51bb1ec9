"""Reports of agents about their replicas: phases, heartbeats, events and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import Max, Min

from datasets.storage import default_storage
from datasets.storage.base import Stat
from jobs import storage_usage
from jobs.lifecycle import holds, replica_facts, wording
from jobs.lifecycle.holds import Held
from jobs.lifecycle.states import ENDED, ReplicaState
from jobs.messages import holds as hold_messages
from jobs.messages import jobs as job_messages
from jobs.models import Artifact, Attempt, Job, JobEvent, Replica
from jobs.models.streams import Source
from jobs.reconcile import cluster_starts, reconciler
from jobs.services.notifications import happened, notify
from jobs.streams import fencing
from jobs.streams.entries import EventRow, Gap
from portal.common.clock import now as wall_clock
from portal.common.doorbell import ring
from portal.common.errors import NotFound, ValidationFailed
from portal.common.rows import ensure
from quota import storage as storage_quota
from quota.models import Kind
from rbac.audit import restorations
from runtime.messages.composition import with_full_stop

# Events of one replica in one attempt that are stored.
EVENTS_LIMIT = 1000
FULL = "events-limit"  # the kind of the event that reports the limit
_EVENTS = "events"  # the kind of source whose numbering ``record_events`` keeps


class ReplicaReport(Protocol):
    """Report of an agent about its replica. ``phase`` is starting, registered, held, released or exited."""

    @property
    def replica(self) -> str: ...
    @property
    def start_number(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def out_of_memory(self) -> bool: ...
    @property
    def why(self) -> str: ...
    @property
    def incarnation(self) -> int | None: ...
    @property
    def exception(self) -> str: ...
    @property
    def seconds(self) -> int: ...
    @property
    def until(self) -> int: ...


@transaction.atomic
def record_report(attempt: Attempt, report: ReplicaReport) -> None:
    """Store the state of a replica. A repeated report, or one of an earlier start, changes nothing.

    Raises NotFound, and StartNotAdopted for a start that the portal has not recorded.
    """
    row = Replica.objects.select_for_update().filter(attempt=attempt, name=report.replica).first()
    if row is None:
        raise NotFound(job_messages.REPLICA_NOT_FOUND(name=f"{report.replica!r}"))
    if report.start_number < row.start_number:
        return
    if report.start_number > row.start_number and restorations.EPOCH.current():
        # The database was restored to its state of an earlier start.
        row = cluster_starts.adopt_after_restore(row, report.start_number)
    fencing.compare(attempt, row.name, report.start_number, row.start_number)
    text = _PHASES[report.phase](row, report, wall_clock())
    row.save()
    if text:
        happened(attempt.job_id, attempt.number, row.name, kind=report.phase, text=text)
    notify(attempt.job)


def _started(row: Replica, report: ReplicaReport, now: datetime) -> str:
    if row.state == ReplicaState.WAITING:
        row.state = ReplicaState.STARTING
    row.started = row.started or now
    return ""


def _registered(row: Replica, report: ReplicaReport, now: datetime) -> str:
    _started(row, report, now)
    if row.state not in ENDED:
        row.state = ReplicaState.REGISTERED
    row.incarnation = report.incarnation or row.incarnation
    before, row.registered = row.registered, row.registered or now
    return "" if before else wording.arrival(row.name, _losses(row), now)


def _losses(row: Replica) -> list[tuple[datetime, str]]:
    """Return the times and kinds of the events by which the replica ended since it last registered.

    Only the first event of each kind is returned.
    """
    happened = JobEvent.objects.filter(job_id=row.attempt.job_id, attempt=row.attempt.number, replica=row.name)
    arrived = happened.filter(kind="registered").aggregate(Max("id"))["id__max"] or 0
    since = happened.filter(id__gt=arrived, kind__in=replica_facts.LOSSES)
    return sorted(since.values_list("kind").annotate(first=Min("at")).values_list("first", "kind"))


def _held(row: Replica, report: ReplicaReport, now: datetime) -> str:
    if row.state in ENDED:
        return ""
    held = Held.of(report.exception, report.seconds, report.until, now)
    before, row.held = Held.from_json(row.held), held.to_json()
    return "" if before == held else holds.begun(row.name, held)


def _released(row: Replica, report: ReplicaReport, now: datetime) -> str:
    before, row.held = Held.from_json(row.held), None
    if before is not None and row.registered is None:
        # Its end is reported next. Until then the time limit for registrations must not end the attempt.
        row.held = replace(before, until=now).to_json()
    return hold_messages.RELEASED(replica=row.name) if before else ""


def _exited(row: Replica, report: ReplicaReport, now: datetime) -> str:
    """Store the end of a replica. The agent's report replaces the backend's observation; it has more details."""
    if row.flushed:
        return ""
    row.state, row.flushed, row.finished = ReplicaState.EXITED, True, row.finished or now
    row.held = None
    row.code, row.signal, row.out_of_memory, row.why = report.code, report.signal, report.out_of_memory, report.why
    return with_full_stop(replica_facts.ending(reconciler.replica_fact(row)))


_PHASES = {
    "starting": _started,
    "registered": _registered,
    "held": _held,
    "released": _released,
    "exited": _exited,
}


def heartbeat(attempt: Attempt, *, replica: str) -> None:
    """Store the time of a heartbeat of a replica's agent."""
    at = connection.ops.adapt_datetimefield_value(wall_clock())
    with connection.cursor() as cursor:
        cursor.execute(_HEARTBEAT, [at, Attempt._meta.pk.get_db_prep_value(attempt.pk, connection), replica])


# Plain: the most frequent write. Through the ORM it takes three times as long.
_HEARTBEAT = f"UPDATE {Replica._meta.db_table} SET heartbeat = %s WHERE attempt_id = %s AND name = %s"  # noqa: S608


@transaction.atomic
def record_events(
    attempt: Attempt,
    *,
    replica: str,
    first: int,
    events: Sequence[EventRow],
    gone: int = 0,
    start_number: int | None = None,
) -> int:
    """Store events (unix time, kind, text), numbered by the replica from ``first`` on. Return the last stored number.

    Events that were stored before are dropped. Beyond EVENTS_LIMIT, events are counted but not stored; a message
    replaces the first of them. Raises Gap if ``first`` is greater than the last stored number plus one and the replica
    may still have the events between: it has none up to ``gone``. Raises for another start of the replica as
    ``fencing.check`` does.
    """
    source = _locked_events(attempt, replica)
    fencing.check(attempt, replica, start_number)
    if first > source.last + 1:
        if first > gone + 1:
            raise Gap(source.last)
        source.last = first - 1
    fresh = events[source.last + 1 - first :]
    JobEvent.objects.bulk_create(
        JobEvent(
            job_id=attempt.job_id,
            attempt=attempt.number,
            at=datetime.fromtimestamp(at, UTC),
            replica=replica,
            kind=kind,
            text=text,
        )
        for at, kind, text in _within_limit(fresh, source.last, replica)
    )
    source.last += len(fresh)
    source.save(update_fields=["last"])
    if fresh:
        ring(f"status:{attempt.job_id}")
    return source.last


@transaction.atomic
def take_over_events(attempt: Attempt, *, replica: str, start_number: int) -> int:
    """Return the number of the last event, after which this start of the replica continues: ``store.take_over``."""
    source = _locked_events(attempt, replica)
    fencing.check(attempt, replica, start_number)
    return source.last


def _locked_events(attempt: Attempt, replica: str) -> Source:
    of = Source.objects.select_for_update().filter(attempt=attempt, replica=replica, kind=_EVENTS)
    source = of.first()
    if source is None:
        ensure(Source, attempt=attempt, replica=replica, kind=_EVENTS)
        source = of.get()
    return source


def _within_limit(fresh: Sequence[EventRow], taken: int, replica: str) -> list[EventRow]:
    """Return the events to store, after ``taken`` earlier ones."""
    kept = list(fresh[: max(0, EVENTS_LIMIT - taken)])
    if taken <= EVENTS_LIMIT < taken + len(fresh):
        text = job_messages.TIMELINE_FULL(replica=replica, count=EVENTS_LIMIT)
        kept.append((fresh[len(kept)][0], FULL, text))
    return kept


def store_artifact(attempt: Attempt, *, replica: str, name: str, sha256: str, size: int, stream: BinaryIO) -> Artifact:
    """Store a file of ``size`` bytes that a replica left. Idempotent.

    If another replica has left a different file of that name, this one is stored as ``<replica>/<name>``.
    Raises QuotaExceeded, before reading anything, if the namespace's storage is full. Raises ValidationFailed if the
    content does not match ``sha256``. Errors of the storage pass through.
    """
    known = Artifact.objects.filter(job_id=attempt.job_id, attempt=attempt.number)
    same = known.filter(sha256=sha256, name__in=(name, f"{replica}/{name}")).first()
    if same:
        return same
    job = Job.objects.select_related("namespace").get(pk=attempt.job_id)
    stored = storage_usage.of_job(job, Kind.ARTIFACTS)
    storage_quota.take(job.namespace, stored, size)
    key = f"{storage_usage.ARTIFACTS}/{attempt.job_id}/{attempt.number}/{uuid4().hex}"
    storage = default_storage()
    try:
        kept = storage.put(key, stream)
        if kept.sha256 != sha256:
            storage.delete(key)
            raise ValidationFailed({"sha256": ["The content has another hash; it was cut or changed on its way."]})
    except BaseException:
        storage_quota.add(stored, -size)
        raise
    try:
        taken = known.filter(name=name).exclude(replica=replica).exists()
        row, replaced = _write_artifact(attempt, f"{replica}/{name}" if taken else name, replica, kept)
    except BaseException:
        # The agent sends the file again, under another key. Without a row, this one stays until the job is deleted.
        storage.delete(key)
        storage_quota.add(stored, -size)
        raise
    storage_quota.add(stored, kept.size - size - (replaced.size if replaced else 0))
    if replaced:
        storage.delete(replaced.key)
    ring(f"status:{attempt.job_id}")
    return row


@transaction.atomic
def _write_artifact(attempt: Attempt, name: str, replica: str, kept: Stat) -> tuple[Artifact, Stat | None]:
    """Write the row of an artifact. Return it with the file that it replaced, if any."""
    names: dict[str, Any] = {"job_id": attempt.job_id, "attempt": attempt.number, "name": name}
    fields = {"replica": replica, "size": kept.size, "sha256": kept.sha256, "key": kept.key, "created": wall_clock()}
    ensure(Artifact, **names, **fields)
    row = Artifact.objects.select_for_update().get(**names)
    if row.key == kept.key:
        return row, None
    before = Stat(row.key, row.size, row.sha256)
    for field, value in fields.items():
        setattr(row, field, value)
    row.save(update_fields=list(fields))
    return row, before
