"""Programs in images of their own on a real cluster, without an agent: ``make test-kube``.

The portal reads their output from their pods.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.messages import cluster as messages
from jobs.messages import jobs as job_messages
from regatta import Client
from regatta.job import Job
from runtime.messages.composition import with_full_stop
from tests.end_to_end.support import processes
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator.environment import controller_on, portal_on
from tests.jobs.operator.kube_cluster import Cluster, own_prefix
from tests.jobs.operator.trial import Trial
from tests.messages import mentions

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SECONDS = 180.0


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def running_portal(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    directory, prefix = tmp_path_factory.mktemp("running_portal") / "data", own_prefix("bare")
    with (
        controller_on(cluster, tmp_path_factory.mktemp("controller"), prefix),
        portal_on(cluster, directory, prefix, REGATTA_LOG_CAP_BYTES=str(8 * 2**20)) as running_portal,
    ):
        yield running_portal


@pytest.fixture
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    with running_portal.client() as client:
        yield client


@pytest.fixture
def trial(portal: Client, cluster: Cluster) -> Iterator[Trial]:
    with Trial(portal, cluster).open() as trial:
        yield trial


def run(trial: Trial, program: str, **fields: Any) -> Job:
    """Submit a Python program."""
    spec: dict[str, Any] = {
        "name": "bare",
        "image": trial.cluster.image,
        "entrypoint": ["python3", "-u", "-c", textwrap.dedent(program)],
        "roles": {"trainer": {"replicas": 1, "cpu": 0.2, "memory": "128Mi"}},
    }
    return trial.submit({**spec, **fields})


def printed(portal: Client, job: Job, replica: str = "trainer-0") -> list[str]:
    return [line.text for line in portal.jobs.logs.read(job.id, replica=replica) if line.stream == "stdout"]


def test_two_programs_run_to_their_end_with_their_lines_and_curves(portal: Client, trial: Trial) -> None:
    program = """
        import os
        print("I am", os.environ["REGATTA_INDEX"], "of", os.environ["REGATTA_TRAINERS"], os.environ["WORD"])
        print("REGATTA_INGEST_TOKEN" in os.environ, os.getuid())
        for step in range(5):
            print(f"step {step} cost {1 / (step + 1)}")
        print("the last", end="")
    """
    two = {"trainer": {"replicas": 2, "cpu": 0.2, "memory": "128Mi"}}
    job = run(trial, program, roles=two, env={"WORD": "open $(sesame)"})
    ended = portal.jobs.wait(job.id, SECONDS)
    assert (ended.state, ended.why) == (
        "SUCCEEDED",
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2)),
    ), ended
    costs = [f"step {step} cost {1 / (step + 1)}" for step in range(5)]
    for index in (0, 1):
        lines = [f"I am {index} of 2 open $(sesame)", "False 10001", *costs, "the last"]
        assert printed(portal, job, f"trainer-{index}") == lines
    assert len(portal.jobs.metrics.series(job.id, "cost")["cost"].x) == 5


def test_of_many_lines_and_of_long_ones_each_comes_once(portal: Client, trial: Trial) -> None:
    program = """
        import sys, time
        for number in range(20_000):
            print(number, file=sys.stderr if number % 3 else sys.stdout)
        time.sleep(0.5)
        print("x" * 50_000)
    """
    job = run(trial, program)
    assert portal.jobs.wait(job.id, SECONDS).state == "SUCCEEDED"
    *numbers, long = printed(portal, job)
    assert sorted(map(int, numbers)) == list(range(20_000))
    assert long == "x" * 50_000


def test_a_failed_program_is_reported_with_its_code(portal: Client, trial: Trial) -> None:
    job = run(trial, "raise SystemExit(3)")
    ended = portal.jobs.wait(job.id, SECONDS)
    assert (ended.state, ended.why) == (
        "FAILED",
        with_full_stop(job_messages.ENDING(replica="trainer-0", ending=job_messages.EXITED(code=3))),
    )


def test_a_program_missing_from_the_image_is_reported_by_name(portal: Client, trial: Trial) -> None:
    job = run(trial, "pass", entrypoint=["no-such-program"])
    ended = portal.jobs.wait(job.id, SECONDS)
    assert ended.state == "FAILED"
    assert mentions(ended.why, job_messages.ENDING, replica="trainer-0") and mentions(ended.why, messages.NOT_STARTED)
    assert "no-such-program" in ended.why


def test_a_missing_image_is_reported(portal: Client, trial: Trial, cluster: Cluster) -> None:
    job = run(trial, "pass", image=f"{cluster.registry}/nobody/nothing:1")
    trial.until("the job says why", lambda: mentions(portal.jobs.get(job.id).why, messages.IMAGE_NOT_PULLED))


ENDLESS = """
    import itertools, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to end"), sys.exit(0)))
    for number in itertools.count():
        print(number)
        time.sleep(0.05)
"""


def numbers(portal: Client, job: Job) -> list[int]:
    return [int(line) for line in printed(portal, job) if line.isdecimal()]


def is_whole(found: list[int]) -> bool:
    """Whether every line is present, once, in order."""
    return found == list(range(len(found)))


def test_the_log_of_a_cancelled_job_is_read_to_its_last_line(portal: Client, trial: Trial, cluster: Cluster) -> None:
    job = run(trial, ENDLESS)
    trial.until("it prints", lambda: len(numbers(portal, job)) > 10)
    portal.jobs.cancel(job.id)
    assert portal.jobs.wait(job.id, SECONDS).state == "CANCELLED"
    assert printed(portal, job)[-1] == "asked to end"
    assert is_whole(numbers(portal, job))
    trial.until_nothing_is_left(job)


@pytest.mark.invariant("A killed log follower loses and duplicates no line of a program without an agent.")
def test_a_killed_log_follower_loses_and_duplicates_nothing(
    portal: Client, trial: Trial, running_portal: RunningPortal
) -> None:
    job = run(trial, ENDLESS)
    for _ in range(3):
        before = len(numbers(portal, job))
        trial.until("it prints", lambda seen=before: len(numbers(portal, job)) > seen + 20)
        for process in running_portal.processes():
            if "manage.py sweep" in process.command:
                processes.kill(process.pid)
    before = len(numbers(portal, job))
    trial.until("it goes on", lambda: len(numbers(portal, job)) > before + 20)
    assert is_whole(numbers(portal, job))
    assert portal.jobs.get(job.id).attempt == 1


def test_a_killed_portal_reads_on_what_was_printed_meanwhile(
    portal: Client, trial: Trial, running_portal: RunningPortal
) -> None:
    job = run(trial, ENDLESS)
    trial.until("it prints", lambda: len(numbers(portal, job)) > 20)
    running_portal.crash()
    running_portal.start()
    before = len(numbers(portal, job))
    trial.until("it goes on", lambda: len(numbers(portal, job)) > before + 50)
    assert is_whole(numbers(portal, job))
