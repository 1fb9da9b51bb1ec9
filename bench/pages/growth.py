"""X5: growth of the database in bytes per ended job, on SQLite and PostgreSQL.

A job of four replicas (a master, a parameter server, two trainers) goes through all its states under the reconciler and
ends; only its backend is simulated. The agents' messages are sent to the ingest API: reports of each replica, 10,000
lines and 10,000 points in batches, with realistic content: steps and identifiers, and values with noise. The sweep's
sealing runs while it trains and after its end, then retention as of eight days later: the records that guard against
repeated batches are gone, and the log, the metrics and the timeline are still there.

The size is that of the whole database: SQLite's file with an empty write-ahead log, and PostgreSQL's
``pg_database_size`` after VACUUM, which its autovacuum runs by itself. Some jobs run first, so that the files have
their usual free space; then the growth is measured five times.

``python -m bench.pages.growth FOLDER [URL]`` measures on one database and prints JSON.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.environment import servers, stage
from bench.report import Row, missed
from bench.scale import scale

if TYPE_CHECKING:
    from jobs.backends.base import AttemptRef, AttemptView, ControlAddress, LaunchPlan

ROUNDS, JOBS_OF_A_ROUND, JOBS_BEFORE = 5, scale(10, 1), scale(10, 1)
LINES, POINTS, BATCHES = 10_000, 10_000, 50  # batches of each replica
GOAL_KB = 200.0
LATER = timedelta(days=8)
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")
TRAINERS = REPLICAS[2:]
_SPEC = {
    "name": "digits",
    "dataset": "public/digits",
    "roles": {"trainer": {"replicas": len(TRAINERS)}, "pserver": {"replicas": 1}},
}
_CASE = f"KB per ended job of {len(REPLICAS)} replicas, {LINES:,} lines, {POINTS:,} points"


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        yield _row("SQLite", stage.child("pages.growth", str(folder / "sqlite")))
        try:
            with servers.postgres(folder) as url:
                yield _row("PostgreSQL", stage.child("pages.growth", str(folder / "postgresql"), url))
        except servers.Absent as error:
            yield missed("X5", f"{_CASE}, PostgreSQL", f"<= {GOAL_KB:g}", str(error))


def _row(database: str, found: Mapping[str, float]) -> Row:
    value = found["bytes"] / 1000
    note = f"of that {found['logs'] / 1000:.0f} KB lines and {found['metrics'] / 1000:.0f} KB points"
    return Row("X5", f"{_CASE}, {database}", round(value, 1), f"<= {GOAL_KB:g}", value <= GOAL_KB, note=note)


# --- One database ----------------------------------------------------------------------------------------------------
def _main(folder: Path, url: str = "") -> None:
    folder.mkdir()
    stage.open_database(folder, url)
    from django.test.utils import setup_test_environment

    setup_test_environment()  # requests come without a server
    backend = PlayedBackend()
    _play(backend)
    chance = random.Random(7)
    for _ in range(JOBS_BEFORE):
        _run_to_end(backend, chance)
    growths = []
    for _ in range(ROUNDS):
        before = _size()
        for _ in range(JOBS_OF_A_ROUND):
            _run_to_end(backend, chance)
        growths.append((_size() - before) / JOBS_OF_A_ROUND)
    print(json.dumps({"bytes": median(growths), **_packed()}))


class PlayedBackend:
    """Backend that runs nothing: started replicas count as running until ``end`` is called."""

    rehearses = False
    outlives_the_portal = True

    def __init__(self) -> None:
        self.plans: dict[str, LaunchPlan] = {}
        self._ended: set[str] = set()

    def launch(self, plan: LaunchPlan) -> None:
        self.plans[plan.ref.job_id] = plan

    def observe(self, ref: AttemptRef) -> AttemptView:
        from jobs.backends.base import AttemptView, Phase, ReplicaView

        plan = self.plans.get(ref.job_id)
        if plan is None:
            return AttemptView(gone=True)
        ended = ref.job_id in self._ended
        phase, code = (Phase.EXITED, 0) if ended else (Phase.RUNNING, None)
        return AttemptView(False, tuple(ReplicaView(one.name, phase, code) for one in plan.replicas))

    def end(self, job: str) -> None:
        self._ended.add(job)

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self.end(ref.job_id)

    def cleanup(self, ref: AttemptRef) -> None:
        self.plans.pop(ref.job_id, None)

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None: ...

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None: ...

    def kill(self, ref: AttemptRef, name: str) -> None: ...

    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        return None

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        return iter(())

    def last_checkpoint(self, job_id: str) -> int:
        return 0

    def checkpoint_sizes(self) -> Mapping[str, int]:
        return {}

    def forget(self, job_id: str) -> None: ...


def _play(backend: PlayedBackend) -> None:
    """Make the portal use this backend."""
    from django.conf import settings

    from jobs.backends import factory as backend_factory

    backend_factory.BACKENDS = {"played": lambda: backend}
    settings.CLUSTER_BACKEND = "played"


def _run_to_end(backend: PlayedBackend, chance: random.Random) -> None:
    """Run a job from its submission until retention has processed it."""
    from jobs.lifecycle.states import TERMINAL
    from jobs.maintenance import retention, stream_compaction
    from jobs.models import Job
    from jobs.reconcile.reconciler import reconcile
    from jobs.selectors import specifications
    from jobs.services import jobs as job_services

    wanted = {**_SPEC, "files": {"train.py": f"# {chance.random()}\n"}}
    job = job_services.submit_job(
        actor=stage.account("runner"), namespace=stage.NAMESPACE, spec=specifications.parse(wanted)
    ).job
    reconcile(job.pk)
    agents = Agents(backend.plans[str(job.pk)])
    for phase in ("starting", "registered"):
        agents.report(phase)
        reconcile(job.pk)
    for number in range(BATCHES):
        agents.send(number, chance)
        stream_compaction.seal_due(datetime.now(UTC))
    backend.end(str(job.pk))
    agents.report("exited")
    state = reconcile(job.pk)
    if state not in TERMINAL:
        raise RuntimeError(f"the job is {state}: {Job.objects.get(pk=job.pk).why}")
    while stream_compaction.seal_due(datetime.now(UTC)):
        pass
    if not retention.prune(datetime.now(UTC) + LATER, seconds=60):
        raise RuntimeError("retention did not come to its end")


class Agents:
    """Sends what the agents of an attempt send to the ingest API."""

    def __init__(self, plan: LaunchPlan) -> None:
        from django.test import Client

        self._attempt = plan.ref.attempt_id
        self._client = Client(headers={"Authorization": f"Bearer {plan.ingest_token}"})

    def report(self, phase: str) -> None:
        for replica in REPLICAS:
            body = {"replica": replica, "start_number": 1, "phase": phase}
            self._post("report", {**body, "code": 0} if phase == "exited" else body)

    def send(self, number: int, chance: random.Random) -> None:
        """Send one batch of lines of every replica, and of points of every trainer."""
        lines, points = LINES // BATCHES // len(REPLICAS), POINTS // BATCHES // len(TRAINERS)
        began = 1.7e9 + 60 * number
        for replica in REPLICAS:
            body = {"replica": replica, "first": number * lines + 1}
            self._post("logs", {**body, "lines": list(_lines(began, number * lines, lines, chance))})
        for replica in TRAINERS:
            body = {"replica": replica, "first": number * points + 1}
            self._post("metrics", {**body, "points": list(_points(began, number * points, points, chance))})

    def _post(self, call: str, body: Mapping[str, Any]) -> None:
        answer = self._client.post(f"/ingest/v1/attempts/{self._attempt}/{call}", body, "application/json")
        if answer.status_code != 200:
            raise RuntimeError(f"{call} was answered with status {answer.status_code}: {answer.content[:200]!r}")


def _lines(began: float, first: int, count: int, chance: random.Random) -> Iterator[tuple[float, str, str]]:
    """Yield lines: three about steps, one about data, and so on."""
    for number in range(first, first + count):
        step, at = number // 4, began + (number - first) + chance.random() / 10
        rate = 64 / (0.05 + chance.random() / 100)
        text = f"step {step}: cost {_cost(step, chance):.6f}, accuracy {chance.random():.4f}, {rate:.1f} records/s"
        if number % 4 == 3:
            text = f"read task {chance.randrange(10**6)} of train.recordio in {chance.random():.4f} s"
        yield at, "stdout", text


def _points(began: float, first: int, count: int, chance: random.Random) -> Iterator[tuple[float, float, str, float]]:
    """Yield values of four curves in turn. All points of a step have nearly the same time."""
    names: Sequence[str] = ("cost", "accuracy", "records_per_second", "step_seconds")
    for number in range(first, first + count):
        step, name = number // len(names), names[number % len(names)]
        seconds = 0.05 + chance.random() / 100
        values = {
            "cost": _cost(step, chance),
            "accuracy": round(64 * (1 - 1 / (1 + step / 50))) / 64,
            "records_per_second": 64 / seconds,
            "step_seconds": seconds,
        }
        yield began + (step - first // len(names)) * 2 + chance.random() / 10, float(step), name, values[name]


def _cost(step: int, chance: random.Random) -> float:
    return 2.3 / (1 + step / 100) + chance.gauss(0, 0.02)


def _size() -> int:
    """Return the size of the database in bytes."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return Path(str(connection.settings_dict["NAME"])).stat().st_size
        cursor.execute("VACUUM")
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def _packed() -> dict[str, float]:
    """Return the bytes of the blocks of one job, by kind of stream."""
    from django.db.models import Sum
    from django.db.models.functions import Length

    from jobs.models import Job
    from jobs.models.streams import Block

    jobs = Job.objects.count()
    sums = Block.objects.values_list("kind").annotate(size=Sum(Length("payload")))
    return {kind: size / jobs for kind, size in sums}


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
