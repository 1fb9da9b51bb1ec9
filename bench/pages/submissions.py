"""P4: submissions per second with admission, one web process and one worker, on SQLite and PostgreSQL.

Several clients post jobs to several namespaces. The worker's reaction to the hint of a submission is done here for each
job: it requests the job's resources, which are reserved if the namespace has them, and claimed if not. Each namespace
admits half of its jobs. The clock ends when the last job is decided; nothing is launched. Afterwards each namespace's
reservations are compared with its limits: with one reservation too many the row is MISSED.

``python -m bench.pages.submissions FOLDER [URL]`` measures on one database and prints JSON.
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.environment import servers, stage
from bench.report import Row, missed
from bench.scale import scale

ROUNDS, NAMESPACES, JOBS, CALLERS = 5, 10, scale(200, 20), 4
GOALS = {"SQLite": 50.0, "PostgreSQL": 100.0}
_BODY = {"name": "waits", "files": {"train.py": "import time\ntime.sleep(600)\n"}}


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        yield from _rows("SQLite", stage.child("pages.submissions", str(folder / "sqlite")))
        try:
            with servers.postgres(folder) as url:
                yield from _rows("PostgreSQL", stage.child("pages.submissions", str(folder / "postgresql"), url))
        except servers.Absent as error:
            yield missed("P4", _case("PostgreSQL"), f">= {GOALS['PostgreSQL']:g}", str(error))


def _case(database: str) -> str:
    return f"submissions/s with admission, {CALLERS} callers, {database}"


def _rows(database: str, found: dict[str, Any]) -> Iterator[Row]:
    goal, excess = GOALS[database], found["excess"]
    note = f"{found['admitted']} of {found['submitted']} admitted"
    yield Row("P4", _case(database), found["rate"], f">= {goal:g}", found["rate"] >= goal, note=note)
    exact = excess == 0 and found["admitted"] == found["submitted"] // 2
    yield Row("P4", f"jobs admitted beyond the limits of their namespace, {database}", excess, "0", exact, note=note)


# --- One database ----------------------------------------------------------------------------------------------------
def _main(folder: Path, url: str = "") -> None:
    folder.mkdir()
    stage.open_database(folder, url)
    (token,) = stage.tokens(1)
    with stage.web(folder, REGATTA_SUBMIT_RATE="100000/min") as address:
        rates = [_round(address, token) for _ in range(ROUNDS)]
    submitted, admitted, excess = _commitments()
    print(json.dumps({"rate": median(rates), "submitted": submitted, "admitted": admitted, "excess": excess}))


def _round(address: str, token: str) -> float:
    """Return jobs per second into new namespaces, until all are decided."""
    names = [_namespace(JOBS // NAMESPACES // 2) for _ in range(NAMESPACES)]
    submitted: queue.Queue[str] = queue.Queue()
    worker = threading.Thread(target=_decide, args=(submitted, JOBS))
    begun = time.perf_counter()
    worker.start()
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(lambda part: _submit(address, token, names, part, submitted), range(CALLERS)))
    worker.join()
    return JOBS / (time.perf_counter() - begun)


def _namespace(limit: int) -> str:
    """Create a namespace that can run ``limit`` jobs at a time."""
    from quota.models import Limit
    from rbac.models import Namespace

    namespace = Namespace.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}")
    for resource, amount in {"jobs": limit, "cpu": 1e6, "memory": 1 << 60, "storage": 1 << 50}.items():
        Limit.objects.update_or_create(namespace=namespace, resource=resource, defaults={"amount": amount})
    return namespace.name


def _submit(address: str, token: str, names: Sequence[str], part: int, submitted: queue.Queue[str]) -> None:
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        for number in range(part, JOBS, CALLERS):
            answer = http.post(f"/api/v1/namespaces/{names[number % len(names)]}/jobs", json=_BODY)
            answer.raise_for_status()
            submitted.put(answer.json()["id"])


def _decide(submitted: queue.Queue[str], count: int) -> None:
    """Do the worker's part for each hinted job, until it waits or has its resources."""
    from django.db import connection

    from jobs.lifecycle.states import JobState
    from jobs.reconcile.reconciler import reconcile

    for _ in range(count):
        reconcile(submitted.get(), rest=frozenset(JobState) - {JobState.QUEUED})
    connection.close()


def _commitments() -> tuple[int, int, float]:
    """Return the numbers of submitted and admitted jobs, and by how many the limits are exceeded."""
    from jobs.models import Job
    from quota.models import Limit, Reservation

    held: dict[int, float] = {}
    rows = Reservation.objects.filter(released=None).values_list("namespace_id", "amounts")
    for namespace, amounts in rows:
        held[namespace] = held.get(namespace, 0.0) + amounts["jobs"]
    limits = {row.namespace_id: row.amount or 0.0 for row in Limit.objects.filter(resource="jobs")}
    excess = sum(max(0.0, amount - limits[namespace]) for namespace, amount in held.items())
    return Job.objects.count(), len(rows), excess


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
