"""Processes are stopped or killed, one or all, and the job continues."""

from __future__ import annotations

import re

import pytest

from runtime import contract
from runtime.messages import training as messages
from tests.faults.cluster import SHORT_LEASE_SECONDS, Cluster
from tests.faults.recording import verdict
from tests.messages import either, mentions

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]


@pytest.fixture(params=["sync"])
def running(request, job, etcd):
    """A job on etcd in the middle of its work, with checkpoints."""
    cluster = job(
        etcd, mode=request.param, tasks=80, passes=2, checkpoint_seconds=0.05, lease=SHORT_LEASE_SECONDS,
        variables={"REGATTA_FAULTS_PAUSE": "0.1"},
    )  # fmt: skip
    cluster.await_count("recorded", 3)
    return cluster


def judge(cluster: Cluster) -> None:
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_checkpoints(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []


def test_preempt_master_kill(running):
    running.kill("master-0")
    judge(running)
    assert len(running.runs["master-0"]) == 2
    assert len(running.runs["trainer-0"]) == len(running.runs["pserver-0"]) == 1


def test_preempt_master_term(running):
    run = running.terminate("master-0")
    running.until(lambda: run.ended, "the master ends")
    running.start("master-0")  # as the portal would, because the job is not over
    judge(running)
    assert len(running.runs["trainer-0"]) == len(running.runs["pserver-0"]) == 1


def test_preempt_pserver_kill(running):
    running.kill("pserver-0")
    judge(running)
    assert re.search(
        either(messages.PSERVER_RECOVERED_FROM_TRAINER, messages.PSERVER_RECOVERED_FROM_CHECKPOINT),
        running.portal.output("pserver-0.2"),
    )
    assert len(running.runs["trainer-0"]) == 1, "its trainers wait for it"


def test_preempt_pserver_term(running):
    """The server writes a last checkpoint: nothing is lost."""
    run = running.terminate("pserver-0")
    running.until(lambda: run.ended, "the server ends")
    last = max(event["version"] for event in running.history() if event.kind == "applied")
    running.start("pserver-0")
    judge(running)
    assert mentions(running.portal.output("pserver-0.2"), messages.PSERVER_RECOVERED_FROM_CHECKPOINT, version=last)


def test_preempt_trainer_kill(running):
    running.kill("trainer-0")
    judge(running)
    assert len(running.runs["trainer-0"]) == 2
    assert len(running.runs["trainer-1"]) == len(running.runs["pserver-0"]) == 1


def test_preempt_trainer_term(running):
    """The trainer releases its task: nobody is blamed, nothing has to be taken away."""
    run = running.terminate("trainer-0")
    running.until(lambda: run.ended, "the trainer ends")
    assert run.code == contract.EXIT_RESTART
    judge(running)
    assert "trainer-0 left.\n" in running.portal.output("master-0.1")
    assert len(running.runs["trainer-1"]) == len(running.runs["pserver-0"]) == 1


@pytest.mark.parametrize("running", ["async"], indirect=True)
def test_kill_all_then_restart(running):
    """Every process and every agent at once: the leases expire, and the job resumes."""
    running.kill_all()
    judge(running)
    assert all(len(runs) >= 2 for runs in running.runs.values())
    assert mentions(
        "".join(running.portal.output(run.source) for run in running.runs["pserver-0"]),
        messages.PSERVER_RECOVERED_FROM_CHECKPOINT,
    )
