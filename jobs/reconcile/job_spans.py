"""Spans of the work on a job that belongs to a recorded trace, from its changes of state and the rows of its replicas.

Each span is recorded by the process whose compare-and-set changed the state, so once. Times are the portal's: an agent
sends neither times nor ids of spans. The ids follow from the trace of the submission, the attempt and the name.

    request
      job.admit, job.build, job.launch, job.register, job.run, job.stop
                              replica.start (of each replica, below job.launch)
                                replica.register
                                  replica.first_point (of each trainer)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from django.db import transaction

from jobs.lifecycle.reasons import RULES
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, Replica, Transition
from portal.common.clock import now as wall_clock
from portal.common.tracing import recording
from portal.common.tracing.context import SpanContext, parse
from portal.common.tracing.spans import AGENT, Span, nanoseconds
from runtime import contract

# The spans of the states that take time.
STAGES: Mapping[JobState, str] = {
    JobState.QUEUED: "job.admit",
    JobState.BUILDING: "job.build",
    JobState.LAUNCHING: "job.launch",
    JobState.REGISTERING: "job.register",
    JobState.RUNNING: "job.run",
    JobState.STOPPING: "job.stop",
}
LAUNCH = STAGES[JobState.LAUNCHING]
START, REGISTER, FIRST_POINT = "replica.start", "replica.register", "replica.first_point"


def trace_of(job: Job) -> SpanContext | None:
    """Return the span of the request that submitted the job; None if this process or the job has no trace."""
    return parse(job.traceparent) if recording.current() is not None and job.traceparent else None


def launch_header(job: Job) -> str:
    """Return the ``traceparent`` for the agents of the present attempt; empty if the job has no trace."""
    trace = trace_of(job)
    return trace.child(job.attempt, LAUNCH).header() if trace else ""


def note(job: Job, before: JobView, after: JobView, loaded: datetime, now: datetime) -> None:
    """Record the stage that ended with a step, after the commit. ``loaded``: when the job was loaded for the step.

    ``now`` is the time of the step. In a sweep that is the beginning of the pass, and a stage that began in the same
    pass is dated by ``loaded``.
    """
    trace = trace_of(job)
    if trace is None or after.state is before.state or before.state not in STAGES:
        return
    start = loaded if before.changed >= now else before.changed
    transaction.on_commit(lambda: _record(trace, job, before, after, start), robust=True)


def _record(trace: SpanContext, job: Job, before: JobView, after: JobView, start: datetime) -> None:
    recording.record(stage(trace, before, after, start, wall_clock()))
    if before.state is JobState.REGISTERING:
        launched = Transition.objects.filter(job=job, attempt=before.attempt, state=JobState.LAUNCHING).last()
        rows = Replica.objects.filter(attempt__job=job, attempt__number=before.attempt).order_by("pk")
        for span in starts(trace, before, rows, launched.at if launched else start):
            recording.record(span)


def note_first_point(attempt: Attempt, replica: str) -> None:
    """Record that the first points of a trainer were stored, after the commit."""
    trace = trace_of(attempt.job)
    if trace is None:
        return
    row = Replica.objects.filter(attempt=attempt, name=replica, role=contract.TRAINER).first()
    if row is not None:
        recording.record(first_point(trace, str(attempt.job_id), attempt.number, row, wall_clock()))


# --- Pure ------------------------------------------------------------------------------------------------------------
def stage(trace: SpanContext, before: JobView, after: JobView, start: datetime, end: datetime) -> Span:
    """Return the span of the state that a job has left. It failed if it ended the attempt with a failure."""
    name, reason = STAGES[before.state], after.reason
    failed = after.state is JobState.STOPPING and reason is not None and RULES[reason].final is JobState.FAILED
    return Span(
        name=name,
        context=trace.child(before.attempt, name),
        parent=trace.span_id,
        start=nanoseconds(start),
        end=nanoseconds(end),
        attributes={**_identity(before.id, before.attempt), "regatta.job.state": str(after.state)},
        error=str(reason) if failed else "",
    )


def starts(trace: SpanContext, job: JobView, rows: Iterable[Replica], launched: datetime) -> Iterator[Span]:
    """Yield the spans of the replicas that have started and registered. ``launched``: begin of the launch."""
    launch = trace.child(job.attempt, LAUNCH)
    for row in rows:
        about = _about(job.id, job.attempt, row)
        begun = trace.child(job.attempt, START, row.name)
        if row.started:
            yield _of_replica(START, begun, launch, launched, row.started, about)
        if row.started and row.registered:
            registered = trace.child(job.attempt, REGISTER, row.name)
            yield _of_replica(REGISTER, registered, begun, row.started, row.registered, about)


def first_point(trace: SpanContext, job_id: str, attempt: int, row: Replica, now: datetime) -> Span:
    """Return the span from the registration of a replica to its first stored points."""
    context = trace.child(attempt, FIRST_POINT, row.name)
    parent = trace.child(attempt, REGISTER, row.name)
    return _of_replica(FIRST_POINT, context, parent, row.registered or now, now, _about(job_id, attempt, row))


def _of_replica(
    name: str,
    context: SpanContext,
    parent: SpanContext,
    start: datetime,
    end: datetime,
    attributes: Mapping[str, str | int],
) -> Span:
    return Span(name, context, parent.span_id, nanoseconds(start), nanoseconds(end), attributes, service=AGENT)


def _about(job_id: str, attempt: int, row: Replica) -> Mapping[str, str | int]:
    return {**_identity(job_id, attempt), "regatta.role": row.role, "regatta.replica": row.name}


def _identity(job_id: str, attempt: int) -> Mapping[str, str | int]:
    return {"regatta.job.id": job_id, "regatta.attempt": attempt}
