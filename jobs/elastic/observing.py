"""What the controller decides on: the jobs that hold quota, those whose turn it would be, and the machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Max

from jobs import elasticity, planner
from jobs.backends import registry
from jobs.elastic import fleet, speeds
from jobs.elastic.cluster import NOTHING, Amounts, Cluster, Core, Node
from jobs.elastic.cluster import Job as Member
from jobs.models import Job, JobEvent, Replica, Scaling
from jobs.spec import JobSpec, RoleSpec
from jobs.states import ENDED, HOLDS_QUOTA, JobState, ReplicaState
from jobs.streams import rollups
from quota import selectors as quota
from quota.models import Claim, Reservation
from runtime import contract

# The metric of a job's speed: runtime.pserver.rate.
_SPEED = "records_per_second"
# How often a job's speed is looked at anew.
_MEASURED_EVERY = timedelta(seconds=10)


@dataclass(frozen=True)
class Seen:
    """``movable``: the keys of the jobs whose trainers may be counted anew now; ``attempts`` and ``names`` by key."""

    cluster: Cluster
    movable: frozenset[str]
    attempts: Mapping[str, int]
    names: Mapping[str, str]


@dataclass
class Observer:
    """Remembers speeds for a while, which are not worth reading each time."""

    _speeds: dict[tuple[UUID, int], tuple[datetime, dict[int, float]]] = field(default_factory=dict)

    def observe(self, now: datetime, *, whole_queue: bool = False) -> Seen | None:
        """None where it is not known what there is to share. With ``whole_queue`` also those that nothing which the
        controller does could let in."""
        prospect = quota.prospect(now, elasticity.least_of_running())
        nodes = _nodes(prospect.capacity)
        if not nodes:
            return None
        rows = list(Job.objects.filter(state__in=HOLDS_QUOTA).select_related("namespace").order_by("created"))
        queued = Job.objects.filter(state=JobState.QUEUED).select_related("namespace")
        waiting = list(queued if whole_queue else queued.filter(pk__in=[pk for pk, _ in prospect.turns]))
        movable: set[str] = set()
        members = [*self._running(rows, nodes[0].name, now, movable), *_newcomers(waiting)]
        limits = {name: fleet.offered(ceiling) for name, ceiling in prospect.ceilings.items()}
        every = [*rows, *waiting]
        return Seen(
            Cluster(nodes, members, limits=limits),
            frozenset(movable),
            {str(job.pk): job.attempt for job in every},
            {str(job.pk): job.name for job in every},
        )

    def _running(self, rows: list[Job], node: str, now: datetime, movable: set[str]) -> Iterator[Member]:
        held = _held(rows)
        trainers, servers = _replicas(rows)
        scalings, checkpoints = _scalings(rows), _checkpoints(rows)
        for job in rows:
            amounts = held.get((job.pk, job.attempt))
            if amounts is None:
                continue
            key, spec = str(job.pk), elasticity.present_spec(job, servers.get(job.pk, 0))
            mine = trainers.get(job.pk, [])
            free = job.state == JobState.RUNNING and elasticity.is_elastic(job) and not any(map(_is_done, mine))
            if free:
                movable.add(key)
            changed, change = _last_change(job, spec, scalings.get(job.pk, []))
            yield _member(
                job,
                spec,
                fleet.asked(amounts),
                node,
                free=free,
                leaving=sum(one.dismissed and one.state not in ENDED for one in mine),
                changed=changed.timestamp(),
                change=change,
                checkpoint_age=(now - checkpoints.get(job.pk, job.changed)).total_seconds(),
                speeds=self._measured(job, spec, scalings.get(job.pk, []), now) if free else {},
            )

    def _measured(self, job: Job, spec: JobSpec, story: list[Scaling], now: datetime) -> dict[int, float]:
        key = job.pk, job.attempt
        at, found = self._speeds.get(key, (None, {}))
        if at is None or now - at >= _MEASURED_EVERY:
            found = _speeds(job, spec, story, now)
            self._speeds[key] = now, found
        if len(self._speeds) > 10_000:
            self._speeds.clear()
        return found


def _nodes(capacity: Mapping[str, float]) -> list[Node]:
    """One machine, or what admins have said that there is."""
    machine = registry.machine()
    if machine is None:
        return [fleet.one_node("platform", {}, capacity)] if {"cpu", "memory"} <= capacity.keys() else []
    return [fleet.one_node(machine.name, {"cpu": machine.cpu, "memory": machine.memory, "gpu": machine.gpu}, capacity)]


# --- Rows -------------------------------------------------------------------------------------------------------------
def _held(rows: list[Job]) -> dict[tuple[UUID, int], dict[str, float]]:
    found = Reservation.objects.filter(job__in=[job.pk for job in rows], released=None)
    return {(row.job, row.attempt): row.amounts for row in found}


def _replicas(rows: list[Job]) -> tuple[dict[UUID, list[Replica]], dict[UUID, int]]:
    """Of the present attempts: the trainers, and how many parameter servers there are."""
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
    """Where one trainer has come to its end, the others will soon."""
    return trainer.state == ReplicaState.EXITED and trainer.code == 0 and not trainer.dismissed


def _scalings(rows: list[Job]) -> dict[UUID, list[Scaling]]:
    """Of the present attempts, in order."""
    attempts = {job.pk: job.attempt for job in rows}
    found: dict[UUID, list[Scaling]] = {}
    for one in Scaling.objects.filter(job__in=attempts).order_by("id"):
        if one.attempt == attempts[one.job_id]:
            found.setdefault(one.job_id, []).append(one)
    return found


def _checkpoints(rows: list[Job]) -> dict[UUID, datetime]:
    """When each wrote its last one."""
    found = JobEvent.objects.filter(job__in=[job.pk for job in rows], kind="checkpoint").order_by()
    return dict(found.values_list("job").annotate(last=Max("at")))


def _last_change(job: Job, spec: JobSpec, story: list[Scaling]) -> tuple[datetime, int]:
    """When its number changed last, and by how many: by all, when it began."""
    if not story:
        return job.changed, spec.trainer.replicas
    return story[-1].at, story[-1].after - story[-1].before


def _speeds(job: Job, spec: JobSpec, story: list[Scaling], now: datetime) -> dict[int, float]:
    first = story[0].before if story else spec.trainer.replicas
    began = job.changed.timestamp()
    numbers = [speeds.Number(began, first), *(speeds.Number(one.at.timestamp(), one.after) for one in story)]
    chart = rollups.buckets(job.pk, (_SPEED,), x="wall", attempt=job.attempt)
    rates = [pair for each in chart.series.values() for pair in zip(each.x.tolist(), each.last.tolist(), strict=True)]
    return speeds.by_trainers(sorted(rates), numbers, now.timestamp())


# --- As a policy sees them --------------------------------------------------------------------------------------------
def _member(job: Job, spec: JobSpec, held: Amounts, node: str, *, free: bool, leaving: int, **story: object) -> Member:
    trainer, size = _need(spec.trainer), spec.trainer.replicas
    stops = job.state == JobState.STOPPING
    rest = Amounts(*(max(0, each) for each in held.minus(trainer.times(size))))
    going = held if stops else trainer.times(leaving)
    return Member(
        key=str(job.pk),
        least=0 if stops else spec.trainer.min if free else size,
        most=0 if stops else spec.trainer.max if free else size,
        trainer=trainer,
        namespace=job.namespace.name,
        priority=fleet.PRIORITIES[spec.priority],
        submitted=job.created.timestamp(),
        started=job.changed.timestamp(),
        trainers={} if stops else {node: size},
        running=0 if stops else size,
        first=spec_of_submission(job).trainer.replicas,
        held={} if stops else {node: rest},
        leaving={node: going} if going != NOTHING else {},
        **story,  # type: ignore[arg-type]
    )


def _newcomers(waiting: list[Job]) -> Iterator[Member]:
    since = {row.job: row.since for row in Claim.objects.filter(job__in=[job.pk for job in waiting])}
    for job in waiting:
        spec, elastic = elasticity.present_spec(job, job.pservers or 0), elasticity.is_elastic(job)
        size = spec.trainer.replicas
        yield Member(
            key=str(job.pk),
            least=spec.trainer.min if elastic else size,
            most=spec.trainer.max if elastic else size,
            trainer=_need(spec.trainer),
            core=_core(spec),
            namespace=job.namespace.name,
            priority=fleet.PRIORITIES[spec.priority],
            submitted=since.get(job.pk, job.changed).timestamp(),
            first=size,
        )


def spec_of_submission(job: Job) -> JobSpec:
    return JobSpec.from_json(job.spec)


def _core(spec: JobSpec) -> Core:
    (_, master), (_, pserver), _ = planner.roles(spec)
    return Core(_need(master).times(master.replicas), _need(pserver), pserver.replicas)


def _need(role: RoleSpec) -> Amounts:
    return fleet.asked({"cpu": role.cpu, "memory": role.memory, "gpu": role.gpu})
