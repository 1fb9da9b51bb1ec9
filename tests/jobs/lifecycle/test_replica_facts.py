"""State of one replica, and the replicas that are to be started again."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from jobs.lifecycle.replica_facts import ReplicaFact, recovering
from jobs.lifecycle.states import JobState, ReplicaState
from tests.jobs.lifecycle.replicas import attempt, exited, job, killed, replica


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.RUNNING])
def test_no_replica_is_started_again_unless_the_job_runs(state: JobState) -> None:
    assert recovering(job(state), attempt(replica("trainer-0"), killed("trainer-1"))) == []


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        (killed("trainer-1"), True),
        (exited("trainer-1", 75), True),
        (replica("trainer-1", state=ReplicaState.LOST), True),
        (killed("master-0"), True),
        (replace(killed("trainer-1"), restarts=2), True),
        (replace(killed("trainer-1"), restarts=3), False),
        (replace(killed("trainer-1"), out_of_memory=True), False),
        (replace(killed("trainer-1"), dismissed=True), False),
        (killed("trainer-1", signal.SIGXCPU), False),
        (exited("trainer-1", 1), False),
        (exited("master-0", 0), False),
        (killed("pserver-0"), True),
        (exited("pserver-0", 76), False),
    ],
    ids=lambda value: f"{value.name} {value.state} {value.signal or value.code}" if not isinstance(value, bool) else "",
)
def test_which_replicas_are_started_again(lost: ReplicaFact, again: bool) -> None:
    assert recovering(job(), (replica("trainer-0"), lost)) == ([lost] if again else [])


def test_no_trainer_is_started_again_once_one_is_done() -> None:
    assert recovering(job(), attempt(exited("trainer-0"), killed("trainer-1"))) == []
