"""Real PaddlePaddle from PyPI on a real portal: its jobs are the shipped examples, installed by their own builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from regatta import Client, Job
from tests.end_to_end.house import House
from tests.end_to_end.processes import kill
from tests.waiting import until

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.timeout(1200)]
END_SECONDS = 1000.0
SAY_NUMPY = "import numpy\nprint('numpy', numpy.__version__, flush=True)\n"


@pytest.fixture(scope="module")
def spacious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A portal that keeps what it has installed for all tests of this file."""
    with House(tmp_path_factory.mktemp("paddle") / "data", REGATTA_SIGN_IN_RATE="1000/min").open() as house:
        yield house


@pytest.fixture
def portal(spacious: House) -> Iterator[Client]:
    with spacious.client() as client:
        yield client


def example(portal: Client, name: str, **fields: Any) -> dict[str, Any]:
    spec = {**portal.example(name), **fields}
    return {**spec, "files": {"train.py": SAY_NUMPY + spec["files"]["train.py"]}}


def printed(portal: Client, job: Job, replica: str | None = None) -> str:
    return "\n".join(line.text for line in portal.logs(job.id, replica=replica))


def succeeded(portal: Client, spec: dict[str, Any]) -> Job:
    job = portal.wait(portal.submit(spec).id, END_SECONDS)
    assert job.state == "SUCCEEDED", f"{job.why}\n{printed(portal, job)}"
    return job


def costs(portal: Client, job: Job) -> list[float]:
    return portal.metrics(job.id, "cost")["cost"].last


def test_a_fleet_trains_and_its_servers_end_when_its_trainers_have(portal: Client) -> None:
    job = succeeded(portal, example(portal, "paddle_fleet"))
    assert job.why == "Trained with 2 trainers."
    assert {replica.name for replica in job.replicas} == {"pserver-0", "pserver-1", "trainer-0", "trainer-1"}
    assert all(replica.state == "exited" for replica in job.replicas)
    seen = costs(portal, job)
    assert sum(seen[-5:]) < 0.5 * sum(seen[:5])
    assert {"model.pdmodel", "model.pdiparams"} <= {artifact.name for artifact in portal.artifacts(job.id)}
    # The agents beside these processes run in the platform's environment, with NumPy 2.
    assert "numpy 1.26" in printed(portal, job, "pserver-0")


def test_workers_train_collectively_with_another_numpy(portal: Client) -> None:
    job = succeeded(portal, example(portal, "paddle_collective"))
    assert [replica.name for replica in job.replicas] == ["trainer-0", "trainer-1"]
    seen = costs(portal, job)
    assert seen[-1] < 0.5 * seen[0]
    assert "worker 1 of 2" in printed(portal, job, "trainer-1")
    assert "numpy 2." in printed(portal, job, "trainer-1")
    assert "model.pdparams" in [artifact.name for artifact in portal.artifacts(job.id)]


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
