"""Elastic jobs share the capacity: a new job gets its minimum from the others, and they grow again when it has
ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jobs.messages import elastic as messages
from regatta import Client
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 60.0
# Cores of a job: its master and its parameter server, and each of its trainers.
CORE, TRAINER = 0.5 + 0.1, 0.3


@pytest.fixture
def free_cpu(http: httpx.Client) -> Iterator[float]:
    """Cores for three jobs with two trainers each, whatever this machine has."""
    cores = round(3 * CORE + 6 * TRAINER, 3)
    body = {"capacity": {"cpu": cores, "memory": 64 * 1024**3}}
    assert http.put("/api/v1/capacity", json=body).status_code == 200
    yield cores
    http.put("/api/v1/capacity", json={"capacity": {"cpu": None, "memory": None}})


def elastic(portal: Client, name: str) -> dict[str, Any]:
    """Return the example that learns to read digits, in small steps and as an elastic job."""
    spec = code.shortened(portal.examples.get("digits"), passes=20)
    script = code.unhurried(spec["files"]["train.py"])
    trainer = {"replicas": 1, "min": 1, "max": 4, "cpu": TRAINER, "memory": "256Mi"}
    roles = {"trainer": trainer, "pserver": {"cpu": 0.1, "memory": "256Mi"}}
    return {**spec, "name": name, "elastic": True, "files": {"train.py": script}, "roles": roles}


def desired_trainers(http: httpx.Client, job: str) -> int:
    """Return the desired number of trainers."""
    return int(http.get(f"/api/v1/jobs/{job}").json()["trainers"] or 1)


def trains(portal: Client, job: str) -> int:
    """Return the number of registered trainers."""
    replicas = portal.jobs.get(job).replicas
    return sum(one.role == "trainer" and one.state == "registered" for one in replicas)


def held(http: httpx.Client) -> float:
    return sum(usage["reserved"]["cpu"] for usage in [http.get("/api/v1/namespaces/admin/quota").json()])


@pytest.mark.invariant("Elastic jobs that share a machine all end with the right model.")
def test_three_jobs_share_the_machine_a_fourth_comes_and_goes_and_all_end_with_the_right_model(
    running_portal: RunningPortal, portal: Client, http: httpx.Client, free_cpu: float
) -> None:
    jobs = [portal.jobs.submit(elastic(portal, f"third-{number}")).id for number in range(3)]

    def together() -> tuple[int, int]:
        return sum(desired_trainers(http, job) for job in jobs), sum(trains(portal, job) for job in jobs)

    until("they have all that there is", lambda: together() == (6, 6), END_SECONDS)
    assert held(http) == pytest.approx(free_cpu)
    fourth = portal.jobs.submit(elastic(portal, "fourth")).id
    until("the fourth trains", lambda: trains(portal, fourth), END_SECONDS)
    assert (sum(desired_trainers(http, job) for job in jobs), held(http) <= free_cpu + 1e-6) == (3, True)
    running_portal.release(fourth)
    assert portal.jobs.wait(fourth, END_SECONDS).state == "SUCCEEDED"
    until("the others have its place", lambda: together() == (6, 6), END_SECONDS)
    for job in jobs:
        running_portal.release(job)
    ends = [portal.jobs.wait(job, END_SECONDS) for job in jobs]
    assert [(ended.state, ended.attempt) for ended in ends] == [("SUCCEEDED", 1)] * 3
    assert min(accuracy(portal, job) for job in jobs) >= 0.9
    assert any(
        mentions(event["text"], messages.SCALES_DOWN_FOR_OTHERS, beneficiary="`fourth`")
        for job in jobs
        for event in portal.jobs.events(job)
    )


def accuracy(portal: Client, job: str) -> float:
    """Return the accuracy on digits that the model was not trained on."""
    text = "\n".join(line.text for line in portal.jobs.logs.read(job))
    return float(re.findall(r"test accuracy: ([01]\.\d+)", text)[-1])
