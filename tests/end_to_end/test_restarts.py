"""The portal crashes or is stopped during a run; printed and measured data must not be lost or doubled."""

from __future__ import annotations

import csv
import io
from collections import defaultdict

import httpx
import pytest

from regatta import Client, Job
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import STOP_SECONDS, RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0


def trains(portal: Client, job: Job, steps: int) -> bool:
    return any(line.text == f"step {steps}" for line in portal.jobs.logs.read(job.id, replica="trainer-0"))


def steps_by_replica(portal: Client, job: Job) -> dict[str, list[int]]:
    """Return the numbers that each trainer printed, in the order of the log."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in portal.jobs.logs.read(job.id):
        if line.text.startswith("step "):
            found[line.replica].append(int(line.text.split()[1]))
    return found


def messages_of(portal: Client, job: Job) -> str:
    """Return the text to show when a test fails."""
    return "\n".join([f"{job.state}: {job.why}", *map(str, job.replicas), *map(str, portal.jobs.events(job.id))])


def points_of(http: httpx.Client, job: Job) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(http.get(f"/api/v1/jobs/{job.id}/metrics.csv").text)))


@pytest.mark.invariant("A killed portal loses and duplicates no log line and no metric point.")
def test_a_killed_portal_loses_and_doubles_nothing(
    running_portal: RunningPortal, portal: Client, http: httpx.Client
) -> None:
    job = portal.jobs.submit(code.slow("survivor"))
    until("it trains", lambda: trains(portal, job, 5), 60)
    running_portal.crash()
    assert running_portal.replica(job.id, "trainer-0"), "the trainers live on while the portal is dead"
    running_portal.start()
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1), messages_of(portal, ended)

    steps = steps_by_replica(portal, job)
    assert set(steps) == {"trainer-0", "trainer-1"}
    assert steps == {name: list(range(1, len(numbers) + 1)) for name, numbers in steps.items()}
    assert [line.seq for line in portal.jobs.logs.read(job.id)] == list(
        range(1, len(list(portal.jobs.logs.read(job.id))) + 1)
    )

    costs = [point for point in points_of(http, job) if point["key"] == "cost"]
    assert len(costs) == sum(map(len, steps.values()))
    assert len({(point["replica"], point["step"]) for point in costs}) == len(costs)


@pytest.mark.invariant("An interrupted portal leaves no process behind, and its jobs continue after the next start.")
@pytest.mark.timed
def test_an_interrupted_portal_stops_all_and_goes_on_later(running_portal: RunningPortal, portal: Client) -> None:
    job = portal.jobs.submit(code.slow("resumed", passes=60))  # minutes, unless it is released
    until("it trains", lambda: trains(portal, job, 3), 60)
    assert running_portal.interrupt() <= STOP_SECONDS
    running_portal.start()
    try:
        until("its code runs again", lambda: running_portal.replica(job.id, "trainer-0"), END_SECONDS)
    except AssertionError as late:
        raise AssertionError(
            f"{late}\n{messages_of(portal, portal.jobs.get(job.id))}\n{running_portal.printed()[-3000:]}"
        ) from None
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2), messages_of(portal, ended)
