"""Real PaddlePaddle from PyPI on a real portal: its jobs are the shipped examples, installed by their own builds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.messages import jobs as job_messages
from regatta import Client, Job
from runtime.messages import training as training_messages
from tests.end_to_end.support.portal import RunningPortal
from tests.end_to_end.support.processes import kill
from tests.framework_jobs import (
    END_SECONDS,
    a_fleet_has_trained,
    example,
    printed,
    succeeded,
    workers_have_trained_collectively,
)
from tests.waiting import until

# The process's view of its isolation: no new privileges, a filter, no capabilities, and its own process numbers.
PRINT_ISOLATION = """\
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("walls", *(status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "Pid")), flush=True)
"""
WALLS = f"walls 1 2 {'0' * 16} 2"

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.timeout(1200)]


# The portal's own user, and an ordinary one: their isolation has different layers.
USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]


@pytest.fixture(scope="module", params=USERS)
def spacious(request: pytest.FixtureRequest) -> Iterator[RunningPortal]:
    """A portal that keeps its installations for all tests of this file."""
    ordinary = request.param == "ordinary"
    # An ordinary user cannot enter directories that pytest creates for root.
    parent = "/srv" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="regatta-paddle-", dir=parent) as directory:
        Path(directory).chmod(0o755)
        running_portal = RunningPortal(Path(directory) / "data", ordinary=ordinary, REGATTA_SIGN_IN_RATE="1000/min")
        with running_portal.open():
            layer = "user namespace" if ordinary else "user id of its own"
            assert f"Jobs are isolated by: {layer}, " in running_portal.printed()
            yield running_portal


@pytest.fixture
def portal(spacious: RunningPortal) -> Iterator[Client]:
    with spacious.client() as client:
        yield client


def walled(portal: Client, name: str) -> dict[str, Any]:
    """Return the example, which prints its isolation."""
    spec = example(portal, name)
    return {**spec, "files": {"train.py": PRINT_ISOLATION + spec["files"]["train.py"]}}


def walls(portal: Client, job: Job) -> dict[str, list[str]]:
    """Return what the process of each replica prints about its isolation."""
    lines = {replica.name: printed(portal, job, replica.name).splitlines() for replica in job.replicas}
    return {name: [line for line in lines_of if line.startswith("walls ")] for name, lines_of in lines.items()}


@pytest.mark.invariant("PaddlePaddle jobs train unchanged, and their servers end when their trainers have ended.")
def test_a_fleet_trains_within_walls_and_its_servers_end_when_its_trainers_have(portal: Client, tmp_path: Path) -> None:
    job = succeeded(portal, walled(portal, "paddle_fleet"))
    a_fleet_has_trained(portal, job, tmp_path)
    assert walls(portal, job) == {replica.name: [WALLS] for replica in job.replicas}


def test_isolated_workers_train_collectively_with_another_numpy(portal: Client, tmp_path: Path) -> None:
    job = succeeded(portal, walled(portal, "paddle_collective"))
    workers_have_trained_collectively(portal, job, tmp_path)
    assert walls(portal, job) == {replica.name: [WALLS] for replica in job.replicas}


def test_a_server_that_is_killed_ends_the_attempt_and_the_next_one_trains(
    spacious: RunningPortal, portal: Client
) -> None:
    job = portal.jobs.submit(example(portal, "paddle_fleet", passes=200, retries=1))
    until("it trains", lambda: "pass 2 of" in printed(portal, portal.jobs.get(job.id)), END_SECONDS)
    for process in spacious.replica(job.id, "pserver-1"):
        kill(process.pid)
    until("it starts again", lambda: portal.jobs.get(job.id).attempt == 2, 60)
    messages = " ".join(event["text"] for event in portal.jobs.events(job.id))
    assert (
        job_messages.ENDED_OTHERS_CANNOT_CONTINUE(
            ending=f"pserver-1 {training_messages.TERMINATED_BY_SIGNAL(signal='9 (SIGKILL)')}"
        )
        in messages
    )
    portal.jobs.cancel(job.id)
    assert portal.jobs.wait(job.id, 60).state == "CANCELLED"
