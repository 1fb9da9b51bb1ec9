"""K5 through the database: 15,000 queued jobs in 30 namespaces, admitted by the platform's own code.

The shape is that of ``admission.py``. Time is simulated in rounds of the sweep's period. A round ends the jobs whose
time is over (their reservations are released) and runs the sweep's admission: read the heads of the queues, decide,
step each job, write job, Transition, reservation and attempt by compare-and-set, and explain the decision for the
others. Only the seconds of admission until the last job is admitted count; nothing is launched. After each round the
reservations are compared with the limits of the namespaces and of the platform.

``python -m bench.kubernetes.admission_database FOLDER [URL]`` measures on one database and prints JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.environment import servers, stage
from bench.kubernetes import admission
from bench.kubernetes.admission import BORROW, CLASSES, GOAL, NOMINAL, PEER, QUEUES
from bench.report import Row, missed
from bench.scale import scale

NAMESPACES = scale(QUEUES, 2)
_MEMORY = 1 << 28


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        yield from _rows("SQLite", stage.child("kubernetes.admission_database", str(folder / "sqlite")))
        try:
            with servers.postgres(folder) as url:
                yield from _rows(
                    "PostgreSQL", stage.child("kubernetes.admission_database", str(folder / "postgresql"), url)
                )
        except servers.Absent as error:
            yield missed("K5", _case("PostgreSQL"), f">= {GOAL:g}", str(error))
    yield from admission.measure()


def _case(database: str) -> str:
    return f"admissions/s through the database, {NAMESPACES * 500:,} queued, {database}"


def _rows(database: str, found: dict[str, Any]) -> Iterator[Row]:
    rate, excess = found["rate"], found["excess"]
    note = f"{found['admitted']} in {found['seconds']} s, {found['cpu']} s of CPU, {found['rounds']} rounds"
    yield Row("K5", _case(database), rate, f">= {GOAL:g}", rate >= GOAL, PEER, round(rate / PEER, 2), note=note)
    exact = excess == 0 and found["admitted"] == found["transitions"] == found["attempts"]
    yield Row("K5", f"units held beyond any limit, {database}", excess, "0", exact, note=f"{found['held']} held")


# --- One database ----------------------------------------------------------------------------------------------------
@dataclass
class _Counts:
    admitted: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    excess: float = 0.0


def _main(folder: Path, url: str = "") -> None:
    folder.mkdir()
    stage.open_database(folder, url)
    from django.conf import settings

    from jobs.models import Attempt, Transition
    from jobs.reconcile.admission import Explanations, admit_waiting
    from quota.models import Reservation

    seconds = _queue_all()
    counts, explanations = _Counts(), Explanations()
    now, rounds = datetime.now(UTC), 0
    ends: dict[Any, datetime] = {}
    while counts.admitted < len(seconds):
        _end_those_over(ends, now)
        begun, cpu = time.perf_counter(), time.process_time()
        admitted = admit_waiting(now, explanations)
        counts.seconds += time.perf_counter() - begun
        counts.cpu += time.process_time() - cpu
        counts.admitted += len(admitted)
        ends |= {job: now + timedelta(seconds=seconds[job]) for job in admitted}
        counts.excess = max(counts.excess, _excess())
        now, rounds = now + timedelta(seconds=settings.SWEEP_SECONDS), rounds + 1
    found = {
        "rate": round(counts.admitted / counts.seconds, 1),
        "admitted": counts.admitted,
        "seconds": round(counts.seconds, 2),
        "cpu": round(counts.cpu, 2),
        "excess": counts.excess,
        "rounds": rounds,
        "transitions": Transition.objects.filter(state="ADMITTED").count(),
        "attempts": Attempt.objects.count(),
        "held": Reservation.objects.filter(released=None).count(),
    }
    print(json.dumps(found))


def _queue_all() -> dict[Any, float]:
    """Create namespaces with limits and the jobs in their queues. Return the duration of each job in seconds."""
    from jobs.models import Job
    from jobs.selectors import specifications
    from jobs.services import jobs as job_services
    from quota.models import Capacity, Limit
    from rbac.models import Namespace

    Capacity.objects.create(resource="cpu", amount=NAMESPACES * NOMINAL)
    seconds: dict[Any, float] = {}
    for number in range(NAMESPACES):
        namespace = Namespace.objects.create(name=f"queue-{number}")
        limits = {"cpu": (NOMINAL, BORROW), "memory": (1 << 50, 0), "jobs": (1000, 0), "gpu": (0, 0)}
        for resource, (amount, borrow) in limits.items():
            Limit.objects.update_or_create(
                namespace=namespace, resource=resource, defaults={"amount": amount, "borrow": borrow}
            )
        for count, units, length, priority in CLASSES:
            trainer = {"replicas": 1, "cpu": units, "memory": f"{_MEMORY}"}
            wanted = {
                "name": f"waits-{units}",
                "files": {"train.py": "pass\n"},
                "framework": "torch",
                "roles": {"trainer": trainer},
                "priority": priority,
            }
            made = job_services.submit_job(
                actor=stage.account("runner"), namespace=namespace.name, spec=specifications.parse(wanted)
            ).job
            fields = {field.attname: getattr(made, field.attname) for field in Job._meta.concrete_fields}
            rows = [Job(**{**fields, "id": uuid4()}) for _ in range(count - 1)]
            Job.objects.bulk_create(rows, batch_size=500)
            seconds |= dict.fromkeys([made.pk, *(row.pk for row in rows)], length)
    return seconds


def _end_those_over(ends: dict[Any, datetime], now: datetime) -> None:
    """Release the reservations of jobs whose time is over."""
    from jobs.models import Job
    from quota import ledger

    over = [job for job, end in ends.items() if end <= now]
    for job in over:
        del ends[job]
        ledger.release(job=job, attempt=1, now=now)
    Job.objects.filter(pk__in=over).update(state="SUCCEEDED", finished=now)


def _excess() -> float:
    """Return by how many units reservations exceed the limit of a namespace or the platform's capacity."""
    from quota.models import Reservation

    held: defaultdict[int, float] = defaultdict(float)
    for namespace, amounts in Reservation.objects.filter(released=None).values_list("namespace_id", "amounts"):
        held[namespace] += amounts["cpu"]
    beyond = [amount - NOMINAL - BORROW for amount in held.values()]
    return max(0.0, sum(held.values()) - NAMESPACES * NOMINAL, *beyond)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
