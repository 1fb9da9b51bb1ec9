"""Jobs of other frameworks than the platform's own runtime, on a real portal."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.messages import cluster as cluster_messages
from jobs.messages import jobs as job_messages
from regatta import Client, Job
from runtime.messages import training as training_messages

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 120.0
# Packages installed with the platform are used if a job requests none.
HERE: dict[str, Any] = {"requirements": []}

ONE_FAILS = """\
import os, torch.distributed as parallel
parallel.init_process_group("gloo")
parallel.barrier()
if parallel.get_rank() == 1:
    raise KeyError("rate")
parallel.barrier()
"""
INIT = "from runtime import dist\ndist.init()\n"
ONE_IS_KILLED = ONE_FAILS.replace('raise KeyError("rate")', "os.kill(os.getpid(), 9)")

# One collective operation, and the process's view of its environment.
ISOLATED = """\
import os, torch, torch.distributed as parallel
parallel.init_process_group("gloo")
count = torch.ones(1)
parallel.all_reduce(count)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
facts = [status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "Pid")]
places = [path for path in ("/run", "/etc/shadow", "/sys/fs") if os.path.exists(path)]
print("isolated", int(count), *facts, places)
"""


def torch_job(name: str, code: str, **fields: Any) -> dict[str, Any]:
    trainers = {"replicas": 2, "cpu": 1, "memory": "1Gi"}
    return {"name": name, "framework": "torch", "files": {"train.py": code}, "roles": {"trainer": trainers}, **fields}


def printed(portal: Client, job: Job, replica: str | None = None) -> str:
    return "\n".join(line.text for line in portal.jobs.logs.read(job.id, replica=replica))


def ended(portal: Client, spec: dict[str, Any]) -> Job:
    return portal.jobs.wait(portal.jobs.submit(spec).id, END_SECONDS)


def succeeded(portal: Client, spec: dict[str, Any]) -> Job:
    job = ended(portal, spec)
    assert job.state == "SUCCEEDED", f"{job.why}\n{printed(portal, job)}"
    return job


def fell(portal: Client, job: Job, key: str = "cost") -> bool:
    values = portal.jobs.metrics.series(job.id, key)[key]
    means = [value for value in values.last if value is not None]
    return len(means) > 4 and sum(means[-2:]) < sum(means[:2])


@pytest.mark.torch
def test_pytorch_processes_rendezvous_within_namespaces(portal: Client) -> None:
    job = succeeded(portal, torch_job("isolated", ISOLATED))
    for replica in ("trainer-0", "trainer-1"):
        assert f"isolated 2 1 2 {'0' * 16} 2 []" in printed(portal, job, replica)


@pytest.mark.invariant("PyTorch jobs train unchanged.")
@pytest.mark.torch
def test_pytorch_s_processes_meet_train_and_leave_a_model(portal: Client) -> None:
    job = succeeded(portal, {**portal.examples.get("torch_digits"), **HERE})
    assert job.why == job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2))
    assert fell(portal, job)
    assert "model.pt" in [artifact.name for artifact in portal.jobs.artifacts.list(job.id)]
    assert {replica.name for replica in job.replicas} == {"trainer-0", "trainer-1"}


@pytest.mark.torch
def test_one_process_that_fails_ends_the_others_and_is_named(portal: Client) -> None:
    job = ended(portal, torch_job("one-fails", ONE_FAILS))
    assert (job.state, job.reason) == ("FAILED", "user_error")
    assert job.why.startswith("trainer-1 exited with code 1: KeyError: 'rate' in train.py line 5")


@pytest.mark.torch
def test_one_killed_process_ends_the_attempt_and_the_job_starts_again(portal: Client) -> None:
    job = ended(portal, torch_job("one-is-killed", ONE_IS_KILLED, retries=1))
    assert (job.state, job.reason, job.attempt) == ("FAILED", "killed", 2)
    assert job.why == job_messages.ENDED_OTHERS_CANNOT_CONTINUE(
        ending=f"trainer-1 {training_messages.TERMINATED_BY_SIGNAL(signal='9 (SIGKILL)')}"
    )


def test_a_job_without_its_framework_is_refused_with_what_to_add(portal: Client) -> None:
    job = ended(portal, {"name": "forgot", "framework": "paddle", "files": {"train.py": "import paddle\n"}})
    assert (job.state, job.reason) == ("FAILED", "build_failed")
    assert cluster_messages.ADD_REQUIREMENT(requirement="paddlepaddle==3.3.1 and setuptools") in job.why


def test_any_program_runs_alone_and_what_it_prints_becomes_the_curve(portal: Client) -> None:
    job = succeeded(portal, portal.examples.get("any_program"))
    assert [replica.name for replica in job.replicas] == ["trainer-0"]
    assert fell(portal, job)
    (line,) = portal.jobs.artifacts.list(job.id)
    assert line.name == "line.txt"


def test_what_a_script_of_the_platform_s_own_runtime_prints_is_no_curve(portal: Client) -> None:
    script = "import time\nprint('cost 1', flush=True)\nprint('loss 2', flush=True)\n"
    job = succeeded(portal, {"name": "prints", "framework": "native", "files": {"train.py": INIT + script}})
    assert portal.jobs.metrics.series(job.id).keys() <= {"records_per_second"}
