"""Agents and traces: the trace of an attempt is the one of its job in the database, whatever an agent sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, Replica
from portal.common.clock import now
from portal.common.tracing.context import SpanContext
from portal.common.tracing.spans import Span, nanoseconds
from tests.factories import make_attempt, make_job
from tests.recorded_spans import recorded

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "token-of-the-attempt"
OWN, OTHERS = SpanContext("a" * 32, "1" * 16), SpanContext("b" * 32, "2" * 16)
POINT = [1e9, 1, "cost", 0.5]


@pytest.fixture
def spans() -> Iterator[list[Span]]:
    with recorded() as spans:
        yield spans


@pytest.fixture
def attempt() -> Attempt:
    """The attempt of a job with a trace."""
    job = make_job(attempt=1, state=JobState.RUNNING)
    Job.objects.filter(pk=job.pk).update(traceparent=OWN.header())
    attempt = make_attempt(job, token=TOKEN)
    for name, role in (("trainer-0", "trainer"), ("pserver-0", "pserver")):
        Replica.objects.create(attempt=attempt, name=name, role=role, index=0, registered=now())
    return attempt


def send(attempt: Attempt, first: int = 1, replica: str = "trainer-0", points: Any = (POINT,), **headers: str) -> int:
    """Send points and return the status of the response."""
    return (
        Client()
        .post(
            f"/ingest/v1/attempts/{attempt.pk}/metrics",
            json.dumps({"replica": replica, "first": first, "points": list(points)}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {TOKEN}", **headers},
        )
        .status_code
    )


def test_the_first_points_of_a_trainer_end_a_span(attempt: Attempt, spans: list[Span]) -> None:
    before = nanoseconds(now())
    assert send(attempt) == 200
    (span,) = spans
    assert (span.name, span.service) == ("replica.first_point", "regatta-agent")
    assert span.context == OWN.child(1, "replica.first_point", "trainer-0")
    assert span.parent == OWN.child(1, "replica.register", "trainer-0").span_id
    assert before <= span.end <= nanoseconds(now())


@pytest.mark.invariant("A span of a job's replica is part of the job's own trace, whatever its agent sends.")
@pytest.mark.parametrize("header", [OTHERS.header(), "", "00-x", "'; --", OTHERS.header() * 50])
def test_a_hostile_agent_cannot_attach_to_another_trace(attempt: Attempt, spans: list[Span], header: str) -> None:
    assert send(attempt, traceparent=header) == 200
    assert [(span.context.trace_id, span.parent) for span in spans] == [
        (OWN.trace_id, OWN.child(1, "replica.register", "trainer-0").span_id)
    ]


@pytest.mark.parametrize("at", [0.0, 253e9])
def test_a_hostile_agent_cannot_choose_the_times_of_a_span(attempt: Attempt, spans: list[Span], at: float) -> None:
    before = nanoseconds(now())
    assert send(attempt, points=[[at, 1, "cost", 0.5]]) == 200
    (span,) = spans
    assert span.start == nanoseconds(Replica.objects.get(name="trainer-0").registered or now())
    assert before <= span.end <= nanoseconds(now())


def test_points_that_are_sent_again_make_no_second_span(attempt: Attempt, spans: list[Span]) -> None:
    for first in (1, 1, 2, 1):
        assert send(attempt, first) == 200
    assert len(spans) == 1


def test_points_of_a_server_make_no_span(attempt: Attempt, spans: list[Span]) -> None:
    assert send(attempt, replica="pserver-0") == 200
    assert spans == []


@pytest.mark.parametrize("stored", [None, "", "no trace", OWN.header()[:-1] + "0"])
def test_a_job_without_a_recorded_trace_makes_no_span(attempt: Attempt, spans: list[Span], stored: str | None) -> None:
    Job.objects.filter(pk=attempt.job_id).update(traceparent=stored)
    assert send(attempt) == 200
    assert spans == []
