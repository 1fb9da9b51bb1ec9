"""Real PaddlePaddle from PyPI on a real portal: its jobs are the shipped examples, installed by their own builds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regatta import Client
from tests.end_to_end.house import House
from tests.end_to_end.processes import kill
from tests.framework_jobs import (
    END_SECONDS,
    a_fleet_has_trained,
    example,
    printed,
    succeeded,
    workers_have_trained_collectively,
)
from tests.waiting import until

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def spacious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A portal that keeps what it has installed for all tests of this file."""
    with House(tmp_path_factory.mktemp("paddle") / "data", REGATTA_SIGN_IN_RATE="1000/min").open() as house:
        yield house


@pytest.fixture
def portal(spacious: House) -> Iterator[Client]:
    with spacious.client() as client:
        yield client


def test_a_fleet_trains_and_its_servers_end_when_its_trainers_have(portal: Client, tmp_path: Path) -> None:
    a_fleet_has_trained(portal, succeeded(portal, example(portal, "paddle_fleet")), tmp_path)


def test_workers_train_collectively_with_another_numpy(portal: Client, tmp_path: Path) -> None:
    workers_have_trained_collectively(portal, succeeded(portal, example(portal, "paddle_collective")), tmp_path)


def test_a_server_that_is_killed_ends_the_attempt_and_the_next_one_trains(spacious: House, portal: Client) -> None:
    job = portal.submit(example(portal, "paddle_fleet", passes=200, retries=1))
    until("it trains", lambda: "pass 2 of" in printed(portal, portal.job(job.id)), END_SECONDS)
    for process in spacious.replica(job.id, "pserver-1"):
        kill(process.pid)
    until("it begins anew", lambda: portal.job(job.id).attempt == 2, 60)
    told = " ".join(event["text"] for event in portal.events(job.id))
    assert "pserver-1 was ended by signal 9 (SIGKILL), and the others cannot go on without it." in told
    portal.cancel(job.id)
    assert portal.wait(job.id, 60).state == "CANCELLED"
