"""Shipped examples of other frameworks as jobs, and checks that hold wherever they ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regatta import Client, Job

END_SECONDS = 1000.0
PRINT_NUMPY = "import numpy\nprint('numpy', numpy.__version__, flush=True)\n"


def example(portal: Client, name: str, **fields: Any) -> dict[str, Any]:
    """Return the example, which also prints its NumPy version."""
    spec = {**portal.examples.get(name), **fields}
    return {**spec, "files": {"train.py": PRINT_NUMPY + spec["files"]["train.py"]}}


def smaller(spec: dict[str, Any], cpu: float) -> dict[str, Any]:
    """Return the same job with ``cpu`` cores for each role."""
    return {**spec, "roles": {name: {**role, "cpu": cpu} for name, role in spec["roles"].items()}}


def printed(portal: Client, job: Job, replica: str | None = None) -> str:
    return "\n".join(line.text for line in portal.jobs.logs.read(job.id, replica=replica))


def succeeded(portal: Client, spec: dict[str, Any]) -> Job:
    job = portal.jobs.wait(portal.jobs.submit(spec).id, END_SECONDS)
    assert job.state == "SUCCEEDED", f"{job.why}\n{printed(portal, job)}"
    assert job.why == "Trained with 2 trainers."
    assert all(replica.state == "exited" for replica in job.replicas)
    return job


def costs(portal: Client, job: Job) -> list[float]:
    return portal.jobs.metrics.series(job.id, "cost")["cost"].last


def download(portal: Client, job: Job, folder: Path, *names: str) -> None:
    """Download these artifacts of the job, which must not be empty."""
    for name in names:
        portal.jobs.artifacts.download(job.id, name, folder / name)
        assert (folder / name).stat().st_size > 0, name


# --- Each example ----------------------------------------------------------------------------------------------------
def a_fleet_has_trained(portal: Client, job: Job, folder: Path) -> None:
    """Check two parameter servers and two trainers of PaddlePaddle 2.6.2."""
    assert {replica.name for replica in job.replicas} == {"pserver-0", "pserver-1", "trainer-0", "trainer-1"}
    seen = costs(portal, job)
    assert sum(seen[-5:]) < 0.5 * sum(seen[:5])
    download(portal, job, folder, "model.pdmodel", "model.pdiparams")
    # The agents of these processes run in the platform's environment, with NumPy 2.
    assert "numpy 1.26" in printed(portal, job, "pserver-0")


def workers_have_trained_collectively(portal: Client, job: Job, folder: Path) -> None:
    """Check two workers of PaddlePaddle 3."""
    assert [replica.name for replica in job.replicas] == ["trainer-0", "trainer-1"]
    seen = costs(portal, job)
    assert seen[-1] < 0.5 * seen[0]
    assert "worker 1 of 2" in printed(portal, job, "trainer-1")
    assert "numpy 2." in printed(portal, job, "trainer-1")
    download(portal, job, folder, "model.pdparams")


def torch_has_trained(portal: Client, job: Job, folder: Path) -> None:
    """Check two processes of torch.distributed."""
    assert [replica.name for replica in job.replicas] == ["trainer-0", "trainer-1"]
    seen = [value for value in costs(portal, job) if value is not None]
    assert len(seen) > 4
    assert sum(seen[-2:]) < sum(seen[:2])
    download(portal, job, folder, "model.pt")
