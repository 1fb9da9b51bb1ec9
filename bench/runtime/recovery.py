"""R7: ``kill -9`` of a trainer, a parameter server or the master, until the job's next accepted gradient.

A whole portal runs a job of two trainers, one parameter server and one master in ``sync`` mode. A replica is killed in
two ways. Its process alone, like a crash: the agent removes the registration and restarts the process. And all
processes of its session, the agent first, like a lost machine: nothing removes the registration, so its lease has to
expire. The metrics of the job are read every 20 ms until there is a step that began after the kill, so the time of the
step, the report and its delivery is included. Steps do not need the master: trainers continue with their assigned
tasks. Hence the row also gives the standstill, the longest time without a step until the replica is back and has worked
for a while.

Every gradient is -1 and the rate is 1, so the only parameter counts the gradients that the servers have received.
Nothing was lost or counted twice if it equals the step's number in every point, and no trainer reports a step twice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.pages.start import answer_of, cancel, has_points, namespace_of, running_here, signed_in, wait_until
from bench.report import Row
from bench.scale import scale
from jobs.backends.local import process_sessions
from runtime import contract
from runtime.contract import MASTER, PSERVER, TRAINER, ReplicaState

VICTIMS: Mapping[str, str] = {TRAINER: "trainer-1", PSERVER: "pserver-0", MASTER: "master-0"}
# Five kills of every role. A replica is restarted at most three times, so two jobs are needed.
KILLS_OF_A_JOB = scale((3, 2), (1,))
PROCESS, MACHINE = "its process alone", "its agent and all processes"
WAYS = (PROCESS, MACHINE)
TRAINERS = 2
BEYOND_THE_LEASE_SECONDS = 2.0
# After its return: several passes, so that every process that needs the replica has contacted it.
STEPS_AFTERWARDS = 50
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0

CODE = """\
import time
import numpy as np
from runtime import dist

job = dist.init()
params = job.params({"applied": np.zeros(1, "f4")}, opt=dist.SGD(1.0))
for _ in job.steps(job.reader("public/digits", batch=64)):
    began = time.monotonic()
    time.sleep(0.01)
    params.push_pull({"applied": -np.ones(1, "f4")})
    job.report(cost=1.0, began=began, accepted=time.monotonic(), applied=params["applied"])
"""
SPEC: Mapping[str, Any] = {
    "name": "recovers",
    "framework": "native",
    "entrypoint": "train.py",
    "files": {"train.py": CODE},
    "dataset": "public/digits",
    "passes": 10_000,
    "roles": {
        TRAINER: {"replicas": TRAINERS, "min": 1, "cpu": 1, "memory": "512Mi"},
        PSERVER: {"replicas": 1, "cpu": 1, "memory": "512Mi"},
    },
}


def measure() -> Iterator[Row]:
    for way in WAYS:
        yield from _rows(way)


def _rows(way: str) -> Iterator[Row]:
    kills: dict[str, list[Kill]] = {role: [] for role in VICTIMS}
    with (
        tempfile.TemporaryDirectory(prefix="regatta-bench-") as data,
        running_here(Path(data)) as portal,
        signed_in(portal) as http,
    ):
        for number in KILLS_OF_A_JOB:
            with _job(http, Path(data)) as job:
                for _ in range(number):
                    for role, replica in VICTIMS.items():
                        kills[role].append(job.kill(replica, way))
    for role, of_role in kills.items():
        yield _row(role, way, of_role)


@dataclass(frozen=True)
class Kill:
    """Result of a kill: ``seconds`` to the next accepted gradient; ``standstill``, the longest time without one."""

    seconds: float
    standstill: float
    kept: bool


def _row(role: str, way: str, kills: Sequence[Kill]) -> Row:
    goal = contract.LEASE_SECONDS[role] + BEYOND_THE_LEASE_SECONDS
    seconds, standstill = median(kill.seconds for kill in kills), median(kill.standstill for kill in kills)
    lost = sum(not kill.kept for kill in kills)
    note = f"{lost} of {len(kills)} kills lost or repeated a step; standstill {standstill:.2f} s"
    met = max(seconds, standstill) <= goal and not lost
    return Row("R7", f"kill -9 of {role}, {way}: s", seconds, f"<= {goal:g}, 0 lost", met, note=note)


@dataclass(frozen=True)
class Points:
    """Points of a job from a step on. A bucket holds one step, as reported by up to all trainers."""

    series: Mapping[str, Mapping[str, Sequence[float]]]

    @property
    def last_step(self) -> float:
        return max(self._of("began", "x"), default=0.0)

    @property
    def last_began(self) -> float:
        return max(self._of("began", "max"), default=0.0)

    @property
    def standstill(self) -> float:
        moments = sorted([*self._of("accepted", "min"), *self._of("accepted", "max")])
        return max((after - before for before, after in pairwise(moments)), default=0.0)

    @property
    def kept(self) -> bool:
        """Whether every step counted exactly once."""
        steps = self._of("applied", "x")
        same = steps == self._of("applied", "min") == self._of("applied", "max")
        return bool(steps) and same and max(self._of("applied", "count")) <= TRAINERS

    def _of(self, name: str, column: str) -> list[float]:
        return list(self.series.get(name, {}).get(column, ()))


@dataclass(frozen=True)
class RunningJob:
    http: httpx.Client
    id: str
    data: Path

    def points(self, first: float) -> Points:
        """Return the points of the steps from ``first`` on."""
        query: dict[str, str | float] = {"keys": "began,accepted,applied", "from": first, "buckets": 5000}
        return Points(answer_of(self.http.get(f"/api/v1/jobs/{self.id}/metrics", params=query))["series"])

    def kill(self, replica: str, way: str) -> Kill:
        """Kill a replica. Measure until the job continues, and watch until the replica has been back for a while."""
        directory, victim = self._at_work(replica, start_number=1)
        first = self.points(0).last_step
        begun = time.monotonic()
        if way == PROCESS:
            process_sessions.kill_children(victim.pid, victim.ticks)
        else:
            process_sessions.kill(victim.pid, victim.ticks, directory)
        dead = time.monotonic()
        _until(f"a step without {replica}", lambda: self.points(first).last_began > dead)
        seconds = time.monotonic() - begun
        self._at_work(replica, victim.start_number + 1)
        back = self.points(first).last_step
        _until("steps afterwards", lambda: self.points(back).last_step >= back + STEPS_AFTERWARDS)
        points = self.points(first)
        return Kill(seconds, points.standstill, points.kept)

    def _at_work(self, replica: str, start_number: int) -> tuple[Path, ReplicaState]:
        """Return its directory and its agent's state, once it works with this start number or a later one."""
        found: list[tuple[Path, ReplicaState]] = []

        def look() -> bool:
            states = ((path, ReplicaState.load(path)) for path in self.data.glob(f"attempts/*/{replica}"))
            found[:] = [
                (path, one)
                for path, one in states
                if one and one.phase == "registered" and one.start_number >= start_number
            ]
            return bool(found)

        _until(f"start {start_number} of {replica}", look)
        return found[0]


@contextmanager
def _job(http: httpx.Client, data: Path) -> Iterator[RunningJob]:
    """Provide a job that trains, until the block is left."""
    id = answer_of(http.post(f"/api/v1/namespaces/{namespace_of(http)}/jobs", json=SPEC))["id"]
    wait_until(http, f"/api/v1/jobs/{id}/metrics?keys=cost", has_points)
    try:
        yield RunningJob(http, id, data)
    finally:
        cancel(http, id)


def _until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"The benchmark waited {_PATIENCE_SECONDS:g} s in vain for {what}.")
        time.sleep(_POLL_SECONDS)
