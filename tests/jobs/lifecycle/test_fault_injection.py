"""Fault injection: the replica to kill, and the time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.lifecycle.fault_injection import MOST_KILLS, Rehearsal, problems, victim
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.states import ReplicaState
from jobs.messages import jobs as messages
from jobs.messages import specification as specification_messages

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EVERY = timedelta(seconds=10)
REHEARSAL = Rehearsal("trainer", EVERY, "alice", NOW)


def replica(name: str, **fields: object) -> ReplicaFact:
    working = ReplicaFact(name, name.split("-")[0], ReplicaState.REGISTERED, registered=True)
    return replace(working, **fields)


def due(*replicas: ReplicaFact, rehearsal: Rehearsal = REHEARSAL, seconds: float = 10) -> str:
    found = victim(rehearsal, replicas, NOW + timedelta(seconds=seconds))
    return found.name if found else ""


DONE: dict[str, object] = {"state": ReplicaState.EXITED, "code": 0}


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([replica("master-0"), replica("trainer-0"), replica("trainer-1")], "trainer-1"),
        ([replica("trainer-0"), replica("trainer-1", start_number=2)], "trainer-0"),
        ([replica("trainer-0"), replica("trainer-1", registered=False)], "trainer-0"),
        ([replica("trainer-0"), replica("trainer-1", dismissed=True)], "trainer-0"),
        ([replica("trainer-0"), replica("trainer-1", **DONE)], ""),
        ([replica("trainer-0"), replica("trainer-1", state=ReplicaState.EXITED, signal=9)], "trainer-0"),
        ([replica("trainer-0", registered=False)], ""),
        ([replica("master-0")], ""),
    ],
    ids=[
        "the last",
        "in turn",
        "not who joins",
        "not who leaves",
        "not at the end",
        "not who is dead",
        "nobody",
        "role",
    ],
)
def test_the_victim_is_registered_and_has_the_role(replicas: list[ReplicaFact], expected: str) -> None:
    assert due(*replicas) == expected


def test_no_replica_is_killed_before_the_interval_has_passed() -> None:
    assert due(replica("trainer-0"), seconds=9.9) == ""


def test_a_rehearsal_ends_by_itself() -> None:
    rehearsal: Rehearsal | None = REHEARSAL
    kills = 0
    while rehearsal is not None:
        rehearsal, kills = rehearsal.next(NOW), kills + 1
    assert kills == MOST_KILLS


@given(
    st.sampled_from(["master", "pserver", "trainer"]), st.integers(1, 3600), st.integers(0, MOST_KILLS), st.datetimes()
)
def test_a_stored_rehearsal_is_read_back(kill: str, seconds: int, done: int, last: datetime) -> None:
    rehearsal = Rehearsal(kill, timedelta(seconds=seconds), "alice", last.replace(tzinfo=UTC), done)
    assert Rehearsal.from_json(rehearsal.to_json()) == rehearsal


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"kill": "boss", "every": "2s"}, "kill", messages.REHEARSAL_ROLE_INVALID(names="master, pserver, trainer")),
        (
            {"kill": ["trainer"], "every": "2s"},
            "kill",
            messages.REHEARSAL_ROLE_INVALID(names="master, pserver, trainer"),
        ),
        ({"kill": "trainer"}, "every", specification_messages.TIME_INVALID(value='"None"')),
        ({"kill": "trainer", "every": "soon"}, "every", specification_messages.TIME_INVALID(value='"soon"')),
        (
            {"kill": "trainer", "every": "0.5s"},
            "every",
            messages.REHEARSAL_INTERVAL_INVALID(least="1s", most="1h", length="0.5s"),
        ),
        (
            {"kill": "trainer", "every": "2h"},
            "every",
            messages.REHEARSAL_INTERVAL_INVALID(least="1s", most="1h", length="2h"),
        ),
        (
            {"kill": "trainer", "every": "2s", "how": "gently"},
            "how",
            messages.REHEARSAL_UNKNOWN_FIELD(),
        ),
    ],
)
def test_an_invalid_request_is_refused_with_a_message(body: dict[str, object], field: str, message: str) -> None:
    assert list(problems(body)) == [field]
    assert message in problems(body)[field][0]


def test_a_valid_request_has_no_problems() -> None:
    assert problems({"kill": "trainer", "every": "10s"}) == {}
