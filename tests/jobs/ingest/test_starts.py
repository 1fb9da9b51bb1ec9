"""Ingest of several starts of a replica: the recorded one writes, an earlier one is refused, a later one waits."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.test import Client

from jobs.lifecycle.states import JobState
from jobs.models import Artifact, Attempt, JobEvent, Replica
from jobs.streams import store
from tests.factories import make_attempt, make_job
from tests.jobs.ingest.test_ingest import TOKEN, logs, post

BODIES: dict[str, dict[str, Any]] = {
    "logs": logs(1, "one"),
    "metrics": {"replica": "trainer-0", "first": 1, "points": [[1e9, 1, "loss", 0.5]]},
    "events": {"replica": "trainer-0", "first": 1, "events": [[1e9, "joined", "x"]]},
    "heartbeat": {"replica": "trainer-0"},
    "begin": {"replica": "trainer-0"},
}


@pytest.fixture
def attempt(db: None) -> Attempt:
    attempt = make_attempt(make_job(attempt=1, state=JobState.RUNNING), token=TOKEN)
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
    return attempt


def becomes(start_number: int) -> None:
    Replica.objects.update(start_number=start_number)


def send(attempt: Attempt, call: str, start_number: int) -> Any:
    return post(attempt, call, {**BODIES[call], "start_number": start_number})


def lines(attempt: Attempt) -> list[str]:
    return [line.text for line in store.read_logs(attempt.job_id).lines]


@pytest.mark.parametrize("call", BODIES)
def test_the_recorded_start_is_answered(attempt: Attempt, call: str) -> None:
    becomes(2)
    assert send(attempt, call, 2).status_code == 200


@pytest.mark.invariant("A start of a replica that was replaced stores nothing.")
@pytest.mark.parametrize("call", BODIES)
def test_a_superseded_start_is_refused_as_a_replaced_attempt_is(attempt: Attempt, call: str) -> None:
    becomes(2)
    answer = send(attempt, call, 1)
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_attempt")
    assert (lines(attempt), store.read_points(attempt.job_id), JobEvent.objects.count()) == ([], [], 0)
    assert Replica.objects.get().heartbeat is None


@pytest.mark.invariant("A start that the cluster made and the portal has not recorded stores nothing yet.")
@pytest.mark.parametrize("call", [*BODIES, "report"])
def test_a_start_that_is_not_recorded_yet_is_to_ask_again(attempt: Attempt, call: str) -> None:
    body = BODIES.get(call, {"replica": "trainer-0", "phase": "registered"})
    answer = post(attempt, call, {**body, "start_number": 2})
    assert (answer.status_code, answer.json()["code"]) == (503, "start_not_adopted")
    assert answer.headers["Retry-After"] == "1"
    assert (lines(attempt), Replica.objects.get().registered) == ([], None)


def put(attempt: Attempt, start_number: Any) -> int:
    query = {"replica": "trainer-0", "name": "model", "sha256": hashlib.sha256(b"x").hexdigest()}
    answer = Client().post(
        f"/ingest/v1/attempts/{attempt.pk}/artifacts",
        b"x",
        content_type="application/octet-stream",
        query_params={**query, "start_number": start_number},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    return int(answer.status_code)


@pytest.mark.parametrize(("start_number", "status"), [(1, 409), (2, 200), (3, 503), ("two", 422)])
def test_a_file_is_taken_from_the_recorded_start_alone(
    attempt: Attempt,
    start_number: Any,
    status: int,
) -> None:
    becomes(2)
    assert put(attempt, start_number) == status
    assert Artifact.objects.count() == (status == 200)


def test_a_new_start_continues_after_all_that_the_earlier_one_stored(attempt: Attempt) -> None:
    post(attempt, "logs", {**logs(1, "one", "two"), "start_number": 1})
    becomes(2)
    assert send(attempt, "begin", 2).json() == {"logs": 2, "metrics": 0, "events": 0}
    post(attempt, "logs", {**logs(3, "three"), "start_number": 2})
    late = post(attempt, "logs", {**logs(3, "of the earlier start"), "start_number": 1})
    assert (late.status_code, lines(attempt)) == (409, ["one", "two", "three"])


def test_a_sender_that_names_no_start_is_taken(attempt: Attempt) -> None:
    becomes(2)
    assert post(attempt, "logs", logs(1, "one")).status_code == 200
