"""Jobs and replicas in the states that the tests of the lifecycle need."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import JobState, ReplicaState

NOW = datetime(2026, 3, 1, tzinfo=UTC)
# Error of a process whose peer is gone.
GLOO = "exited with code 1: RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"


def job(state: JobState = JobState.RUNNING, **fields: object) -> JobView:
    view = JobView(id="j", state=state, attempt=1, changed=NOW, admitted=NOW)
    return replace(view, **fields)


def replica(name: str, **fields: object) -> ReplicaFact:
    working = ReplicaFact(name, name.split("-")[0], ReplicaState.REGISTERED, registered=True)
    return replace(working, **fields)


def exited(name: str, code: int | None = 0, **fields: object) -> ReplicaFact:
    return replica(name, state=ReplicaState.EXITED, code=code, flushed=True, **fields)


def killed(name: str, number: int = 9) -> ReplicaFact:
    return exited(name, None, signal=number)


def spent(name: str) -> ReplicaFact:
    """Return a killed replica without restarts left."""
    return replace(killed(name), restarts=3)


def attempt(*trainers: ReplicaFact) -> tuple[ReplicaFact, ...]:
    return (replica("master-0"), replica("pserver-0"), *trainers)
