"""Two sweeps on one PostgreSQL, as processes: one makes the passes, and the other continues when it is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 90.0
# The sweep that was killed ran on this machine, so nobody waits for the length of its lease.
CONTINUE_SECONDS = 10.0


@dataclass(frozen=True)
class Sweep:
    process: subprocess.Popen[bytes]
    port: int

    def passes_over_jobs(self) -> float:
        """Return the seconds that this sweep has spent on reconciling jobs; 0 if it made no pass."""
        try:
            text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=60).text
        except httpx.TransportError:
            return 0.0
        found = re.search(r'^regatta_sweep_task_seconds_total\{task="jobs"\} (\S+)$', text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def makes_passes(self) -> bool:
        """Whether a pass is made after the call."""
        before = self.passes_over_jobs()
        until("a pass", lambda: self.passes_over_jobs() > before, CONTINUE_SECONDS)
        return True


@pytest.fixture
def environment(postgres: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes on a database of their own, which is migrated."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS two_sweeps WITH (FORCE)")
        connection.execute("CREATE DATABASE two_sweeps")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    own |= {
        "REGATTA_DATA_DIR": str(tmp_path / "data"),
        "REGATTA_DATABASE_URL": postgres.rpartition("/")[0] + "/two_sweeps",
        "REGATTA_SWEEP_SECONDS": "0.1",
    }
    done = subprocess.run([sys.executable, "manage.py", "migrate"], cwd=ROOT, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield own


@pytest.fixture
def sweeps(environment: dict[str, str]) -> Iterator[list[Sweep]]:
    found = []
    for _ in range(2):
        port = free_port()
        command = [sys.executable, "manage.py", "sweep", "--operations-port", str(port)]
        found.append(Sweep(subprocess.Popen(command, cwd=ROOT, env=environment), port))
    yield found
    for sweep in found:
        sweep.process.kill()
        sweep.process.wait()


def holder(environment: dict[str, str]) -> int:
    """Return the process id of the sweep that holds the lease; 0 if none does."""
    with psycopg.connect(environment["REGATTA_DATABASE_URL"]) as connection:
        row = connection.execute("SELECT holder FROM portal_sweeplease").fetchone()
    return int(row[0].rpartition("/")[2] or 0) if row else 0


def test_the_second_sweep_does_no_work_until_the_first_is_killed(
    sweeps: list[Sweep], environment: dict[str, str]
) -> None:
    until("a sweep holds the lease", lambda: holder(environment), START_SECONDS)
    until("both run", lambda: all(_answers(sweep) for sweep in sweeps), START_SECONDS)
    first, second = sorted(sweeps, key=lambda sweep: sweep.process.pid != holder(environment))
    assert first.makes_passes()
    assert second.passes_over_jobs() == 0.0
    first.process.kill()
    first.process.wait()
    assert second.makes_passes()
    assert holder(environment) == second.process.pid


def _answers(sweep: Sweep) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{sweep.port}/metrics", timeout=60).status_code == 200
    except httpx.TransportError:
        return False
