"""Spans of the work on a job: stages, starts of replicas, failures, and the trace of a retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.ingest.payloads import Report
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, Replica
from jobs.reconcile import job_spans, reconciler
from jobs.reconcile.sweep import sweep
from jobs.services import jobs as job_services
from jobs.services import replica_reports
from portal.common.clock import now
from portal.common.tracing.context import SpanContext, parse
from portal.common.tracing.spans import Span, nanoseconds
from runtime import contract
from tests.jobs.conftest import Use
from tests.jobs.fakes import ObedientBackend, RefusingBackend
from tests.personas import Personas
from tests.recorded_spans import in_a_request, recorded

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TRACE = SpanContext("a" * 32, "1" * 16)
BUILDING = JobView("j1", JobState.BUILDING, 2, MOMENT)
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")
Submit = Callable[..., Job]
stored = pytest.mark.django_db(transaction=True)


@pytest.fixture
def spans() -> Iterator[list[Span]]:
    with recorded() as spans:
        yield spans


def names(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


def ended(reason: Reason | None, state: JobState = JobState.STOPPING) -> JobView:
    return replace(BUILDING, state=state, reason=reason)


# --- Pure ------------------------------------------------------------------------------------------------------------
def test_a_stage_lasts_from_the_change_into_its_state_to_the_next() -> None:
    span = job_spans.stage(TRACE, BUILDING, ended(None, JobState.LAUNCHING), MOMENT, MOMENT + timedelta(seconds=2))
    assert (span.name, span.end - span.start) == ("job.build", 2 * 10**9)
    assert (span.context, span.parent) == (TRACE.child(2, "job.build"), TRACE.span_id)
    assert span.attributes == {"regatta.job.id": "j1", "regatta.attempt": 2, "regatta.job.state": "LAUNCHING"}


@pytest.mark.parametrize(
    ("reason", "error"), [(Reason.BUILD_FAILED, "build_failed"), (Reason.CANCELLED, ""), (Reason.COMPLETED, "")]
)
def test_a_stage_that_ends_the_attempt_with_a_failure_has_its_reason(reason: Reason, error: str) -> None:
    assert job_spans.stage(TRACE, BUILDING, ended(reason), MOMENT, MOMENT).error == error


def test_a_clock_that_was_set_back_gives_a_span_without_duration() -> None:
    span = job_spans.stage(TRACE, BUILDING, ended(None, JobState.LAUNCHING), MOMENT, MOMENT - timedelta(hours=1))
    assert span.start == span.end == nanoseconds(MOMENT)


def test_a_replica_s_spans_lead_from_the_launch_to_its_registration() -> None:
    row = Replica(name="trainer-0", role="trainer", started=MOMENT + timedelta(1), registered=MOMENT + timedelta(2))
    start, register = job_spans.starts(TRACE, BUILDING, [row], MOMENT)
    assert (start.name, start.parent) == ("replica.start", TRACE.child(2, "job.launch").span_id)
    assert (register.name, register.parent) == ("replica.register", start.context.span_id)
    assert (start.start, start.end) == (nanoseconds(MOMENT), register.start)


def test_a_replica_that_never_started_has_no_span() -> None:
    assert list(job_spans.starts(TRACE, BUILDING, [Replica(name="trainer-0", role="trainer")], MOMENT)) == []


# --- Jobs ------------------------------------------------------------------------------------------------------------
def register_all(job: Job) -> None:
    for replica in REPLICAS:
        for phase in ("starting", "registered"):
            attempt = Attempt.objects.get(job=job)
            replica_reports.record_report(attempt, Report(replica, phase, None, None, False, ""))


@stored
def test_a_job_that_runs_has_a_span_of_each_stage_and_replica(
    submit: Submit, backend: ObedientBackend, spans: list[Span]
) -> None:
    with in_a_request() as trace_id:
        job = submit()
    reconciler.reconcile(job.pk)
    register_all(job)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    starts = ["replica.start", "replica.register"] * len(REPLICAS)
    assert names(spans) == ["job.admit", "job.build", "job.launch", "job.register", *starts]
    assert {span.context.trace_id for span in spans} == {trace_id}


@stored
def test_jobs_that_the_sweep_admits_together_have_spans(
    submit: Submit, backend: ObedientBackend, spans: list[Span]
) -> None:
    with in_a_request():
        submit(name="one")
        submit(name="two")
    moment = now()
    sweep(moment)
    assert sorted(names(spans)) == sorted(["job.admit", "job.build", "job.launch"] * 2)
    builds = [span for span in spans if span.name == "job.build"]
    assert all(span.start > nanoseconds(moment) for span in builds)


@stored
def test_a_launch_that_fails_has_the_error(submit: Submit, use: Use, spans: list[Span]) -> None:
    use(RefusingBackend())
    with in_a_request():
        job = submit()
    reconciler.reconcile(job.pk)
    launches = [span for span in spans if span.name == "job.launch"]
    assert [span.error for span in launches] == ["launch_refused"]


@stored
def test_agents_get_the_trace_of_their_launch(submit: Submit, backend: ObedientBackend, spans: list[Span]) -> None:
    with in_a_request():
        job = submit()
    reconciler.reconcile(job.pk)
    (plan,) = backend.plans.values()
    (launch,) = [span for span in spans if span.name == "job.launch"]
    given = {replica.environment[contract.TRACEPARENT] for replica in plan.replicas}
    assert given == {launch.context.header()}


@stored
def test_a_job_outside_any_trace_has_no_spans(submit: Submit, backend: ObedientBackend, spans: list[Span]) -> None:
    job = submit()
    reconciler.reconcile(job.pk)
    assert spans == []
    assert [contract.TRACEPARENT in one.environment for one in next(iter(backend.plans.values())).replicas] == [
        False
    ] * 4


@stored
def test_a_process_without_tracing_records_nothing(submit: Submit, backend: ObedientBackend) -> None:
    with recorded() as spans, in_a_request():
        job = submit()
    reconciler.reconcile(job.pk)
    assert parse(Job.objects.get(pk=job.pk).traceparent)
    assert spans == []


@stored
def test_a_retry_has_the_trace_of_its_own_request(
    submit: Submit, backend: ObedientBackend, personas: Personas, spans: list[Span]
) -> None:
    with in_a_request() as first:
        job = submit()
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with in_a_request() as second:
        job_services.retry_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    of_attempts = {(span.attributes["regatta.attempt"], span.context.trace_id) for span in spans}
    assert of_attempts == {(1, first), (2, second)}
