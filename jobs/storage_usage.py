"""Storage usage of jobs, reported to the quota.

Files and code are counted when they arrive, sealed logs and metrics when they are merged, and checkpoints and homes of
notebooks when they are measured. Once a day, everything is counted again from the actual contents of the storage and
the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Length

from datasets.storage import default_storage
from jobs.backends import factory as backend_factory
from jobs.models import Job
from jobs.models.streams import Block, StreamHead
from quota import storage
from quota.models import Kind
from quota.storage import StoredObject
from rbac.models import Namespace

_log = logging.getLogger(__name__)

MEASURE_EVERY = timedelta(minutes=10)
REPAIR_EVERY = timedelta(days=1)
ARTIFACTS = "artifacts"


def of_job(job: Job, kind: Kind) -> StoredObject:
    """Return the accounted item of one kind of a job."""
    return StoredObject(job.namespace_id, kind, str(job.pk), job.name)


def of_code(namespace: Namespace, digest: str, name: str) -> StoredObject:
    """Return the accounted item of a snapshot of code, counted once in each namespace that has submitted it.

    ``name`` is that of the first job with the snapshot.
    """
    return StoredObject(namespace.pk, Kind.CODE, digest, name)


def sealed(job_id: UUID | str, size: int) -> None:
    """Count ``size`` more sealed bytes of a job's log and metrics, in the transaction that seals them."""
    job = Job.objects.only("namespace_id", "name").filter(pk=job_id).first()
    if job is not None:
        storage.add(of_job(job, Kind.STREAMS), size)


def measure_checkpoints(job: Job) -> None:
    """Measure the checkpoints that are kept for the job's next attempt."""
    storage.measured(of_job(job, Kind.CHECKPOINTS), backend_factory.current().checkpoint_sizes().get(str(job.pk), 0))


def forget(job: Job) -> None:
    """Stop counting a job that is being deleted. Its code stays counted while another job of the namespace has it."""
    for kind in (Kind.ARTIFACTS, Kind.CHECKPOINTS, Kind.STREAMS):
        storage.forget(of_job(job, kind))
    _forget_code(job.namespace, job.snapshot_id, Job.objects.exclude(pk=job.pk))


def forget_unused_code(namespace: Namespace, digest: str) -> None:
    """Stop counting a snapshot of code, unless a job of the namespace has it."""
    _forget_code(namespace, digest, Job.objects.all())


def _forget_code(namespace: Namespace, digest: str, others: QuerySet[Job]) -> None:
    if not others.filter(namespace=namespace, snapshot=digest).exists():
        storage.forget(of_code(namespace, digest, ""))


# --- Recount ---------------------------------------------------------------------------------------------------------
class Accounting:
    """Measures checkpoints and homes once per MEASURE_EVERY, and everything else once per REPAIR_EVERY."""

    def __init__(self) -> None:
        self._measure: datetime | None = None
        self._repair: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._measure is None or now >= self._measure:
            self._measure = now + MEASURE_EVERY
            measure(now)
        if self._repair is None or now >= self._repair:
            self._repair = now + REPAIR_EVERY
            repair(now)


def measure(now: datetime) -> None:
    """Measure the checkpoints of all jobs and the homes of notebooks: no other process reports them."""
    storage.repair(Kind.CHECKPOINTS, _checkpoints(), now, settled=timedelta(0))
    storage.repair(Kind.HOMES, _homes(), now, settled=timedelta(0))


def repair(now: datetime) -> int:
    """Recount the contents of the storage and the tables. Return how many amounts were wrong."""
    found = {Kind.ARTIFACTS: _artifacts(), Kind.STREAMS: _streams(), Kind.CODE: _code()}
    wrong = sum(storage.repair(kind, actual, now) for kind, actual in found.items())
    if wrong:
        _log.warning("%d amounts of storage were counted wrong and have been put right.", wrong)
    return wrong


def _homes() -> dict[StoredObject, int]:
    homes = backend_factory.home_store()
    sizes = homes.sizes() if homes is not None else {}
    rows = Namespace.objects.filter(pk__in=sizes).values_list("pk", "name")
    return {StoredObject(pk, Kind.HOMES, str(pk), name): sizes[str(pk)] for pk, name in rows}


def _of_jobs(kind: Kind, sizes: Mapping[str, int]) -> dict[StoredObject, int]:
    jobs = Job.objects.filter(pk__in=sizes).only("namespace_id", "name")
    return {of_job(job, kind): sizes[str(job.pk)] for job in jobs.iterator()}


def _checkpoints() -> dict[StoredObject, int]:
    return _of_jobs(
        Kind.CHECKPOINTS,
        {job: size for job, size in backend_factory.current().checkpoint_sizes().items() if _is_id(job)},
    )


def _artifacts() -> dict[StoredObject, int]:
    """Sum the files that the storage lists, whether they have a row or not."""
    sizes: dict[str, int] = {}
    for stat in default_storage().list(ARTIFACTS):
        job = stat.key.split("/")[1]
        sizes[job] = sizes.get(job, 0) + stat.size
    return _of_jobs(Kind.ARTIFACTS, {job: size for job, size in sizes.items() if _is_id(job)})


def _streams() -> dict[StoredObject, int]:
    head = StreamHead.objects.filter(job=OuterRef("job"), kind=OuterRef("kind"))
    blocks = Block.objects.annotate(sealed=Subquery(head.values("sealed")[:1])).filter(hi__lte=F("sealed"))
    sums = blocks.order_by().values_list("job_id").annotate(size=Sum(Length("payload")))
    return _of_jobs(Kind.STREAMS, {str(job): size for job, size in sums})


def _code() -> dict[StoredObject, int]:
    found: dict[tuple[int, str], tuple[StoredObject, int]] = {}
    rows = Job.objects.order_by("created").values_list("namespace_id", "snapshot_id", "name", "snapshot__size")
    for namespace, digest, name, size in rows.iterator():
        found.setdefault((namespace, digest), (StoredObject(namespace, Kind.CODE, digest, name), size))
    return dict(found.values())


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
