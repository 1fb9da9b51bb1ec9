"""Input of the controller's decisions: jobs that hold quota, jobs that could be admitted, and the machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Max

from jobs.elastic.controller.capacity import CapacityReader, Layout, Neighbours, Tenant
from jobs.elastic.inputs import conversions
from jobs.elastic.policy.model import Amounts, Cluster, Core
from jobs.elastic.policy.model import Job as Member
from jobs.launch import roles
from jobs.lifecycle import throughput
from jobs.lifecycle.states import ENDED, HOLDS_QUOTA, JobState, ReplicaState
from jobs.maintenance import history
from jobs.models import Attempt, Job, JobEvent, Replica, Scaling
from jobs.selectors import elastic_jobs
from jobs.spec.model import JobSpec, RoleSpec
from jobs.streams import rollups
from quota import selectors as quota
from quota.models import Claim, Reservation
from runtime import contract

# The metric of a job's speed: runtime.pserver.shard_reports.
_SPEED = "records_per_second"
# The interval at which the speed of a job is read again.
_MEASURED_EVERY = timedelta(seconds=10)


@dataclass(frozen=True)
class Seen:
    """The observed state.

    ``movable``: the keys of the jobs whose number of trainers may change now. ``attempts`` and ``names``: by key.
    ``neighbours``: the usage of a cluster by others than jobs; None without a cluster.
    """

    cluster: Cluster
    movable: frozenset[str]
    attempts: Mapping[str, int]
    names: Mapping[str, str]
    neighbours: Neighbours | None = None


@dataclass
class Observer:
    """Observer of jobs and nodes. It caches the speeds of jobs and the recent demand of services between rounds."""

    capacity_reader: CapacityReader = field(default_factory=CapacityReader)
    _speeds: dict[tuple[UUID, int], tuple[datetime, dict[int, float]]] = field(default_factory=dict)

    def observe(self, now: datetime, *, queued: int = 0) -> Seen | None:
        """Return the observed state, or None if the capacity is unknown.

        ``queued``: also include this many of the longest waiting jobs, even if no scaling could admit them.
        """
        prospect = quota.prospect(now, elastic_jobs.least_of_running())
        rows = list(Job.objects.filter(state__in=HOLDS_QUOTA).select_related("namespace").order_by("created"))
        holders = list(_holders(rows))
        layout = self.capacity_reader.layout([one.tenant for one in holders], prospect.capacity, now)
        if layout is None:
            return None
        turns = {pk for pk, _ in prospect.turns}
        if queued:
            turns.update(Claim.objects.order_by("since", "pk").values_list("job", flat=True)[:queued])
        waiting = list(Job.objects.filter(state=JobState.QUEUED, pk__in=turns).select_related("namespace"))
        movable = frozenset(one.tenant.key for one in holders if one.free)
        members = [*self._running(holders, layout, now), *_newcomers(waiting, layout)]
        limits = {name: conversions.offered(ceiling) for name, ceiling in prospect.ceilings.items()}
        every = [*rows, *waiting]
        return Seen(
            Cluster(layout.nodes, members, layout.services, limits=limits),
            movable,
            {str(job.pk): job.attempt for job in every},
            {str(job.pk): job.name for job in every},
            layout.neighbours,
        )

    def _running(self, holders: list[Holder], layout: Layout, now: datetime) -> Iterator[Member]:
        rows = [one.job for one in holders]
        present = {(job.pk, job.attempt) for job in rows}
        self._speeds = {key: found for key, found in self._speeds.items() if key in present}
        scalings, checkpoints = _scalings(rows), _checkpoints(rows)
        for one in holders:
            job = one.job
            changed, change = _last_change(job, one.spec, scalings.get(job.pk))
            age = (now - checkpoints.get(job.pk, job.changed)).total_seconds()
            speed = self._measured(job, now) if one.free else {}
            yield _member(one, layout, _JobHistory(changed.timestamp(), change, age, speed))

    def _measured(self, job: Job, now: datetime) -> dict[int, float]:
        key = job.pk, job.attempt
        at, found = self._speeds.get(key, (None, {}))
        if at is None or now - at >= _MEASURED_EVERY:
            found = _speeds(job, now)
            self._speeds[key] = now, found
        return found


# --- Rows -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Holder:
    """A job that holds quota. ``free``: its number of trainers may change now."""

    job: Job
    spec: JobSpec
    tenant: Tenant
    free: bool


def _holders(rows: list[Job]) -> Iterator[Holder]:
    held = _held(rows)
    trainers, servers = _replicas(rows)
    attempts = _attempts(rows)
    for job in rows:
        amounts = held.get((job.pk, job.attempt))
        if amounts is None:
            continue
        spec, mine = elastic_jobs.present_spec(job, servers.get(job.pk, 0)), trainers.get(job.pk, [])
        running = job.state == JobState.RUNNING and elastic_jobs.is_elastic(job)
        tenant = Tenant(
            key=str(job.pk),
            namespace=job.namespace.name,
            attempt=attempts.get(job.pk, ""),
            roles={} if job.state == JobState.STOPPING else _roles(spec),
            held=conversions.asked(amounts),
            leaving=sum(one.dismissed and one.state not in ENDED for one in mine),
            trainer=_need(spec.trainer),
        )
        yield Holder(job, spec, tenant, running and not any(map(_is_done, mine)))


def _roles(spec: JobSpec) -> dict[str, tuple[int, Amounts]]:
    return {role: (each.replicas, _need(each)) for role, each in roles.of(spec)}


def _attempts(rows: list[Job]) -> dict[UUID, str]:
    """Return the id of the present attempt of each job."""
    found = Attempt.objects.filter(job__in=[job.pk for job in rows], number=F("job__attempt"))
    return {job: str(pk) for pk, job in found.values_list("pk", "job")}


def _held(rows: list[Job]) -> dict[tuple[UUID, int], dict[str, float]]:
    found = Reservation.objects.filter(job__in=[job.pk for job in rows], released=None)
    return {(row.job, row.attempt): row.amounts for row in found}


def _replicas(rows: list[Job]) -> tuple[dict[UUID, list[Replica]], dict[UUID, int]]:
    """Return the trainers and the number of parameter servers of the present attempts, by job."""
    attempts = {(job.pk, job.attempt) for job in rows}
    trainers: dict[UUID, list[Replica]] = {}
    servers: dict[UUID, int] = {}
    found = Replica.objects.filter(attempt__job__in=[job.pk for job in rows], role__in=_COUNTED)
    for one in found.select_related("attempt"):
        job = one.attempt.job_id
        if (job, one.attempt.number) not in attempts:
            continue
        if one.role == contract.TRAINER:
            trainers.setdefault(job, []).append(one)
        else:
            servers[job] = servers.get(job, 0) + 1
    return trainers, servers


_COUNTED = (contract.TRAINER, contract.PSERVER)


def _is_done(trainer: Replica) -> bool:
    """Whether a trainer has finished its work. The others of its job soon will."""
    return trainer.state == ReplicaState.EXITED and trainer.code == 0 and not trainer.dismissed


def _scalings(rows: list[Job]) -> dict[UUID, Scaling]:
    """Return the last scaling of each job, if it belongs to the present attempt."""
    attempts = {job.pk: job.attempt for job in rows}
    last = Scaling.objects.filter(job__in=attempts).order_by().values("job").annotate(last=Max("id"))
    found = Scaling.objects.filter(pk__in=last.values("last"))
    return {one.job_id: one for one in found if one.attempt == attempts[one.job_id]}


def _checkpoints(rows: list[Job]) -> dict[UUID, datetime]:
    """Return the time of the last checkpoint of each job."""
    found = JobEvent.objects.filter(job__in=[job.pk for job in rows], kind="checkpoint").order_by()
    return dict(found.values_list("job").annotate(last=Max("at")))


def _last_change(job: Job, spec: JobSpec, last: Scaling | None) -> tuple[datetime, int]:
    """Return when the number of trainers last changed, and by how many; the start counts as a change by all."""
    return (job.changed, spec.trainer.replicas) if last is None else (last.at, last.after - last.before)


def _speeds(job: Job, now: datetime) -> dict[int, float]:
    """Return the measured records per second by number of trainers.

    Only the time since which all events exist counts: ``history.trim`` removes earlier events of a long attempt.
    """
    events = JobEvent.objects.filter(job=job, attempt=job.attempt)
    trimmed = events.filter(kind=history.TRIMMED).aggregate(Max("at"))["at__max"]
    moves = events.filter(kind__in=(throughput.JOINED, *throughput.LEFT))
    trainers = moves.filter(replica__startswith=f"{contract.TRAINER}-").order_by("id")
    happened = trainers.values_list("at", "kind", "replica")
    numbers = throughput.trainer_counts(
        throughput.ReplicaEvent(at.timestamp(), kind, replica) for at, kind, replica in happened
    )
    if trimmed is not None:
        numbers = throughput.counts_since(numbers, trimmed.timestamp())
    chart = rollups.buckets(job.pk, (_SPEED,), x="wall", attempt=job.attempt)
    rates = [pair for each in chart.series.values() for pair in zip(each.x.tolist(), each.last.tolist(), strict=True)]
    return throughput.by_trainers(sorted(rates), numbers, now.timestamp())


# --- As input of the policy -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _JobHistory:
    """What happened to a job.

    ``changed``: when its number of trainers last changed. ``change``: by how many. ``checkpoint_age``: seconds since
    its last checkpoint. ``speeds``: records per second by number of trainers.
    """

    changed: float
    change: int
    checkpoint_age: float
    speeds: Mapping[int, float]


def _member(one: Holder, layout: Layout, job_history: _JobHistory) -> Member:
    job, spec, size = one.job, one.spec, one.spec.trainer.replicas
    stops, replicas = job.state == JobState.STOPPING, layout.replicas[one.tenant.key]
    least = 0 if stops else spec.trainer.min if one.free else size
    return Member(
        key=one.tenant.key,
        least=least,
        most=0 if stops else spec.trainer.max if one.free else size,
        trainer=one.tenant.trainer,
        namespace=job.namespace.name,
        priority=conversions.PRIORITIES[spec.priority],
        submitted=job.created.timestamp(),
        started=job.changed.timestamp(),
        trainers=replicas.trainers,
        pending=replicas.pending,
        running=0 if stops else size,
        # Jobs on a common machine may share its cores for a while. Pods wait until their cores are free.
        first=least if layout.is_exact else spec_of_submission(job).trainer.replicas,
        held=replicas.held,
        leaving=replicas.leaving,
        tolerates=layout.tolerates,
        changed=job_history.changed,
        change=job_history.change,
        checkpoint_age=job_history.checkpoint_age,
        speeds=job_history.speeds,
    )


def _newcomers(waiting: list[Job], layout: Layout) -> Iterator[Member]:
    since = {row.job: row.since for row in Claim.objects.filter(job__in=[job.pk for job in waiting])}
    for job in waiting:
        spec, elastic = elastic_jobs.present_spec(job, job.pservers or 0), elastic_jobs.is_elastic(job)
        size = spec.trainer.replicas
        yield Member(
            key=str(job.pk),
            least=spec.trainer.min if elastic else size,
            most=spec.trainer.max if elastic else size,
            trainer=_need(spec.trainer),
            core=_core(spec),
            namespace=job.namespace.name,
            priority=conversions.PRIORITIES[spec.priority],
            submitted=since.get(job.pk, job.changed).timestamp(),
            first=size,
            tolerates=layout.tolerates,
        )


def spec_of_submission(job: Job) -> JobSpec:
    return JobSpec.from_json(job.spec)


def _core(spec: JobSpec) -> Core:
    (_, master), (_, pserver), _ = roles.of(spec)
    return Core(_need(master).times(master.replicas), _need(pserver), pserver.replicas)


def _need(role: RoleSpec) -> Amounts:
    return conversions.asked({"cpu": role.cpu, "memory": role.memory, "gpu": role.gpu})
