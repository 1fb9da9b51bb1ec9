"""Rate limits: each refusal names the time of the next try, and changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from jobs.lifecycle.states import JobState
from jobs.models import Artifact, Attempt, Job, Replica
from jobs.models.streams import StreamKind
from jobs.streams import store
from tests.factories import make_attempt, make_job
from tests.jobs.conftest import SPEC
from tests.personas import Personas

pytestmark = pytest.mark.django_db
TWICE_A_MINUTE = (2, timedelta(minutes=1))
JOBS = "/api/v1/namespaces/team/jobs"


def running(personas: Personas) -> Attempt:
    """An attempt of one trainer, whose agent holds the token ``t``."""
    job = make_job(personas.namespace, personas.owner, attempt=1, state=JobState.RUNNING)
    attempt = make_attempt(job, token="t")
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
    return attempt


@pytest.fixture
def attempt(personas: Personas) -> Attempt:
    return running(personas)


def says_when(answer: Any) -> bool:
    """Return whether the answer is a refusal with the time of the next try, in the header and in the message."""
    wait = int(answer.headers.get("Retry-After", 0))
    return answer.status_code == 429 and 0 < wait <= 60 and f"{wait} s" in answer.json()["detail"]


# --- Submitting ------------------------------------------------------------------------------------------------------
def test_jobs_are_submitted_so_often_and_no_more(personas: Personas, settings: Settings) -> None:
    settings.SUBMIT_RATE = TWICE_A_MINUTE
    hasty, neighbour = personas.client("developer"), personas.client("owner")
    answers = [hasty.post(JOBS, SPEC, content_type="application/json") for _ in range(3)]
    assert [answer.status_code for answer in answers[:2]] == [201, 201]
    assert says_when(answers[2])
    assert Job.objects.count() == 2
    assert neighbour.post(JOBS, SPEC, content_type="application/json").status_code == 201


def test_running_again_counts_as_submitting(personas: Personas, settings: Settings, submit: Callable[[], Job]) -> None:
    settings.SUBMIT_RATE = TWICE_A_MINUTE
    ended = [submit() for _ in range(3)]
    Job.objects.update(state=JobState.FAILED)
    hasty = personas.client("developer")
    answers = [hasty.post(f"/api/v1/jobs/{job.pk}/retry") for job in ended]
    assert [answer.status_code for answer in answers[:2]] == [202, 202]
    assert says_when(answers[2])
    assert Job.objects.get(pk=ended[2].pk).state == JobState.FAILED


def test_a_dry_run_is_not_counted(personas: Personas, settings: Settings) -> None:
    settings.SUBMIT_RATE = TWICE_A_MINUTE
    careful = personas.client("developer")
    asked = [careful.post(f"{JOBS}?dry_run=true", SPEC, content_type="application/json") for _ in range(4)]
    assert {answer.status_code for answer in asked} == {200}


# --- Requests of agents ----------------------------------------------------------------------------------------------
def send(attempt: Attempt, call: str, body: Any) -> Any:
    address = f"/ingest/v1/attempts/{attempt.pk}/{call}"
    return Client(headers={"authorization": "Bearer t"}).post(address, body, content_type="application/json")


def line(number: int) -> dict[str, Any]:
    return {"replica": "trainer-0", "first": number, "lines": [[1.0, "stdout", "x"]]}


def test_an_attempt_sends_so_often_and_no_more_and_loses_nothing(attempt: Attempt, settings: Settings) -> None:
    settings.INGEST_RATE = TWICE_A_MINUTE
    answers = [send(attempt, "logs", line(number)) for number in (1, 2, 3)]
    assert [answer.status_code for answer in answers[:2]] == [200, 200], answers[0].content
    assert says_when(answers[2])
    assert store.head(attempt.job_id, StreamKind.LOGS).last == 2
    settings.INGEST_RATE = (100, timedelta(minutes=1))
    assert send(attempt, "logs", line(3)).json() == {"last": 3}


def test_the_noise_of_one_attempt_costs_no_other(attempt: Attempt, personas: Personas, settings: Settings) -> None:
    settings.INGEST_RATE = TWICE_A_MINUTE
    quiet = running(personas)
    for number in (1, 2, 3):
        send(attempt, "logs", line(number))
    assert send(quiet, "logs", line(1)).status_code == 200


def test_heartbeats_are_always_accepted(attempt: Attempt, settings: Settings) -> None:
    settings.INGEST_RATE = settings.UPLOAD_RATE = TWICE_A_MINUTE
    assert {send(attempt, "heartbeat", {"replica": "trainer-0"}).status_code for _ in range(5)} == {200}


def test_files_are_sent_so_often_and_no_more(attempt: Attempt, settings: Settings) -> None:
    settings.UPLOAD_RATE = TWICE_A_MINUTE

    def upload(number: int) -> Any:
        content = str(number).encode()
        query = f"replica=trainer-0&name=model-{number}&sha256={hashlib.sha256(content).hexdigest()}"
        return Client(headers={"authorization": "Bearer t"}).post(
            f"/ingest/v1/attempts/{attempt.pk}/artifacts?{query}", content, content_type="application/octet-stream"
        )

    answers = [upload(number) for number in (1, 2, 3)]
    assert [answer.status_code for answer in answers[:2]] == [200, 200], answers[0].content
    assert says_when(answers[2])
    assert Artifact.objects.count() == 2
