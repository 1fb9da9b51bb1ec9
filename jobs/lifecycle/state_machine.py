"""Lifecycle of a job: ``step(job, event, now)`` and the table of its transitions. Pure.

``jobs.reconcile.reconciler`` is the only caller of ``step``. It loads a job, gets the events from
``jobs.lifecycle.observations.events_from``, steps, and writes the outcome by compare-and-set. Pending work is not
stored in a queue: ``effects_due`` derives it from the state, so work that is lost with a process is done again. Every
effect is idempotent.

States and their exits

QUEUED       The attempt waits for quota. Its standing effect is Reserve, which each sweep and the end of another job
             repeat. ``why`` holds the message of the quota's decision.
ADMITTED     Quota is reserved for (job, attempt), and the Attempt and its Replica rows exist. Left at once.
BUILDING     The builder makes the code bundle and, if the specification has requirements, the Python environment
             (Build). Installation runs in a separate process; the builder is polled until it has a result.
LAUNCHING    The backend gets the plan (Launch). A second call starts nothing twice. A transient error, such as a
             store or a cluster that does not answer, ends the attempt after ``LAUNCH_PATIENCE`` at the earliest; until
             then the sweep tries again.
REGISTERING  Processes run and each has to register, trainers by calling ``dist.init()``. Agents report it through
             ingest. A trainer that is lost here does not delay the others while enough are left.
RUNNING      All have registered. The exits of the trainers decide the end, see
             ``jobs.lifecycle.attempt_end.decide``. Meanwhile trainers may join and leave as the desired number
             changes, and lost replicas are started again as often as ``jobs.lifecycle.replica_facts.RESTARTS`` allows:
             ``jobs.lifecycle.desired_replicas`` compares the desired replicas with the observed ones.
STOPPING     The reason of the end is fixed and is never replaced. Stop is repeated until every process has ended and
             every agent has reported its end after the last of its output, or until
             ``jobs.lifecycle.observations.Policy.drain`` has passed without that report.
SUCCEEDED    |
FAILED       | The end; the reason decides which (``jobs.lifecycle.reasons``). Quota is released and the streams are
CANCELLED    | closed. Only a user's retry leaves it: the same job again, as the next attempt.

Sources of events

QuotaReserved, QuotaRefused   quota.ledger.reserve, called by the reconciler; quota.ledger.review for all waiting jobs
BuildStarted                  the reconciler, at once
Built, BuildFailed            jobs.builds.builders
Launched, LaunchFailed        the backend
AllRegistered                 agents' reports and the backend's view, by ``jobs.lifecycle.observations.events_from``
StrengthChanged               the same; while replicas have yet to register, with the reasons why they wait
AttemptEnded                  the same, by ``jobs.lifecycle.attempt_end.decide``; also the registration deadline and
                              the job's timeout
CancelRequested               a user, through jobs.services.jobs.cancel_job, which only records the request
Interrupted                   jobs.reconcile.shutdown.interrupt_all, when the portal is stopped
Preempted                     the quota's ledger, when a namespace reclaims capacity that it lent
Drained                       reports and the backend's view, while STOPPING
RetryRequested                a user, through jobs.services.jobs.retry_job

Known races, each handled as an ordinary result

* Two reconcilers process one job at once: both step, one write succeeds (``Job.revision``), the other reads it again.
* A build or launch finishes after the job was cancelled: the event is late, the state stays, and STOPPING stops what
  was started.
* An event of an older attempt: the job stays unchanged, and the message gives the reason.
* Cancelled after the last trainer exited with 0, but before that was observed: the cancellation wins.
* The backend observes the end of a process before its agent has delivered the last lines: the verdict is immediate,
  Drained waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.reasons import RULES, Reason, retries_left
from jobs.lifecycle.states import ACTIVE, HOLDS_QUOTA, TERMINAL, JobState
from jobs.messages import jobs as messages
from runtime import contract

__all__ = ["ACTIVE", "HOLDS_QUOTA", "TERMINAL", "JobState"]

# The same time for which running jobs continue while their coordination store does not answer.
LAUNCH_PATIENCE = timedelta(seconds=contract.OUTAGE_SECONDS)


# --- The job ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class JobView:
    """The columns of a job on which its transitions depend. ``requeues`` counts retried attempts by reason."""

    id: str
    state: JobState
    attempt: int
    changed: datetime
    reason: Reason | None = None
    why: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    admitted: datetime | None = None  # when the present attempt was admitted
    retries: int = 0
    requeues: Mapping[str, int] = field(default_factory=dict)
    timeout: timedelta = timedelta(hours=1)
    trainers: int = 1  # the desired number
    min_trainers: int = 1
    # The processes find one another once, when they start (jobs.frameworks): none can be replaced, none may be missing.
    together: bool = False
    pause: Pause | None = None  # of the present attempt


# --- Events ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Event:
    """Event of one attempt. ``why`` is a message for the user; if empty, the state has its own message."""

    attempt: int
    why: str = ""


class QuotaReserved(Event): ...


class QuotaRefused(Event): ...


class BuildStarted(Event): ...


class Built(Event): ...


class BuildFailed(Event): ...


class Launched(Event): ...


@dataclass(frozen=True)
class LaunchFailed(Event):
    retryable: bool = False


class AllRegistered(Event): ...


class StrengthChanged(Event): ...


@dataclass(frozen=True)
class AttemptEnded(Event):
    reason: Reason = Reason.COMPLETED


class CancelRequested(Event): ...


class Interrupted(Event): ...


class Preempted(Event): ...


class Drained(Event): ...


class RetryRequested(Event): ...


EVENTS: tuple[type[Event], ...] = (
    QuotaReserved,
    QuotaRefused,
    BuildStarted,
    Built,
    BuildFailed,
    Launched,
    LaunchFailed,
    AllRegistered,
    StrengthChanged,
    AttemptEnded,
    CancelRequested,
    Interrupted,
    Preempted,
    Drained,
    RetryRequested,
)


# --- Effects ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Effect:
    """Action to take for one attempt. Idempotent."""

    attempt: int


# Standing: repeated while the state lasts. Each returns an event, or nothing yet.
class Reserve(Effect): ...


class Build(Effect): ...


class Launch(Effect): ...


class Stop(Effect): ...


# Immediate: changes of rows in the transaction that changes the state.
class OpenAttempt(Effect): ...


class CloseAttempt(Effect): ...


class ReleaseQuota(Effect): ...


class OpenStreams(Effect): ...


class CloseStreams(Effect): ...


# Immediate, after the commit: readers are notified.
class Publish(Effect): ...


_STANDING: Mapping[JobState, type[Effect]] = {
    JobState.QUEUED: Reserve,
    JobState.BUILDING: Build,
    JobState.LAUNCHING: Launch,
    JobState.STOPPING: Stop,
}


def effects_due(job: JobView) -> tuple[Effect, ...]:
    """Return the standing effect of the job's state, also if it was begun before."""
    kind = _STANDING.get(job.state)
    return (kind(job.attempt),) if kind else ()


# --- Steps -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Step:
    """Result of an event: the new job, the immediate effects, and the message."""

    job: JobView
    effects: tuple[Effect, ...]
    why: str


class InvalidTransition(Exception):
    """Raised for an event that cannot happen in a state: an error of the platform, never of a user."""

    def __init__(self, job: JobView, event: Event) -> None:
        self.job, self.event = job, event
        super().__init__(
            f"Job {job.id}, attempt {job.attempt}, is {job.state} since {job.changed.isoformat()} "
            f"(reason {job.reason or 'none'}: {job.why!r}); {type(event).__name__} cannot happen to it: {event!r}."
        )


Handler = Callable[[JobView, Event, datetime], Step]


def step(job: JobView, event: Event, now: datetime) -> Step:
    """Return the job after the event. Deterministic.

    An event of another attempt changes nothing, and the message gives the reason. Raises InvalidTransition for a pair
    of state and event outside the table.
    """
    if event.attempt != job.attempt:
        return _unchanged(job, f"This is about attempt {event.attempt}; the job is at attempt {job.attempt}.")
    handler = TRANSITIONS.get((job.state, type(event)))
    if handler is None:
        raise InvalidTransition(job, event)
    return handler(job, event, now)


def _unchanged(job: JobView, why: str) -> Step:
    return Step(job, (), why)


def _enter(job: JobView, state: JobState, why: str, now: datetime, *effects: type[Effect]) -> Step:
    after = replace(job, state=state, why=why, changed=now)
    return Step(after, (*(kind(job.attempt) for kind in effects), Publish(after.attempt)), why)


def _admit(job: JobView, event: Event, now: datetime) -> Step:
    admitted = replace(job, admitted=now)
    return _enter(admitted, JobState.ADMITTED, event.why or messages.ADMITTED(), now, OpenAttempt)


def _explain(job: JobView, event: Event, now: datetime) -> Step:
    """Keep the state and change its message."""
    if event.why == job.why:
        return _unchanged(job, job.why)
    return Step(replace(job, why=event.why), (Publish(job.attempt),), event.why)


def _build(job: JobView, event: Event, now: datetime) -> Step:
    return _enter(job, JobState.BUILDING, event.why or messages.PREPARING_CODE(), now)


def _launch(job: JobView, event: Event, now: datetime) -> Step:
    return _enter(job, JobState.LAUNCHING, event.why or messages.STARTING_REPLICAS(), now)


def _await_registration(job: JobView, event: Event, now: datetime) -> Step:
    return _enter(job, JobState.REGISTERING, event.why or messages.WAITING_FOR_REGISTRATION(), now)


def _run(job: JobView, event: Event, now: datetime) -> Step:
    running = replace(job, started=job.started or now)
    return _enter(running, JobState.RUNNING, event.why or messages.ALL_REGISTERED(), now)


def _stop(job: JobView, reason: Reason, why: str, now: datetime) -> Step:
    stopping = replace(job, reason=reason)
    return _enter(stopping, JobState.STOPPING, why or RULES[reason].message, now)


def _stop_because(reason: Reason) -> Handler:
    return lambda job, event, now: _stop(job, reason, event.why, now)


def _stop_at_end(job: JobView, event: Event, now: datetime) -> Step:
    assert isinstance(event, AttemptEnded)  # noqa: S101  guaranteed by the table's key
    return _stop(job, event.reason, event.why, now)


def _launch_failed(job: JobView, event: Event, now: datetime) -> Step:
    assert isinstance(event, LaunchFailed)  # noqa: S101  guaranteed by the table's key
    if event.retryable and now < job.changed + LAUNCH_PATIENCE:
        return _explain(job, replace(event, why=f"{event.why} It is tried again."), now)
    return _stop(job, Reason.LAUNCH_FAILED if event.retryable else Reason.LAUNCH_REFUSED, event.why, now)


def _cancel_waiting(job: JobView, event: Event, now: datetime) -> Step:
    """Cancel a job of which nothing runs yet, without passing through STOPPING."""
    why = event.why or RULES[Reason.CANCELLED].message
    ended = replace(job, reason=Reason.CANCELLED, finished=now)
    return _enter(ended, JobState.CANCELLED, why, now, ReleaseQuota, CloseStreams)


def _finish_or_requeue(job: JobView, event: Event, now: datetime) -> Step:
    reason = _reason_of(job)
    left = retries_left(reason, job.retries, job.requeues)
    return _finish(job, reason, now) if left == 0 else _requeue(job, reason, left, now)


def _reason_of(job: JobView) -> Reason:
    if job.reason is None:
        raise InvalidTransition(job, Drained(job.attempt, "a job that stops has a reason"))
    return job.reason


def _finish(job: JobView, reason: Reason, now: datetime) -> Step:
    ended = replace(job, finished=now)
    return _enter(ended, RULES[reason].final, job.why, now, CloseAttempt, ReleaseQuota, CloseStreams)


def _requeue(job: JobView, reason: Reason, left: int | None, now: datetime) -> Step:
    after = f"{job.why} Trying again as attempt {job.attempt + 1}"
    why = after + ("." if left is None else f"; {left - 1} more {'try' if left == 2 else 'tries'} after it.")
    requeues = {**job.requeues, str(reason): job.requeues.get(reason, 0) + 1}
    moved = _enter(job, JobState.QUEUED, why, now, CloseAttempt, ReleaseQuota)
    again = replace(moved.job, attempt=job.attempt + 1, reason=None, requeues=requeues, admitted=None)
    return replace(moved, job=again)


def _retry(job: JobView, event: Event, now: datetime) -> Step:
    """Retry at a user's request: the retry budget is reset."""
    fresh = replace(job, finished=None, reason=None, requeues={}, admitted=None)
    moved = _enter(fresh, JobState.QUEUED, event.why or messages.WAITING_FOR_RETRY(), now, OpenStreams)
    return replace(moved, job=replace(moved.job, attempt=job.attempt + 1))


def _late(job: JobView, event: Event, now: datetime) -> Step:
    return _unchanged(job, f"{type(event).__name__} came late: the job is already {job.state}.")


_PREPARING = (JobState.ADMITTED, JobState.BUILDING, JobState.LAUNCHING)
_STARTED = (JobState.REGISTERING, JobState.RUNNING)
_ORDER = (JobState.QUEUED, *_PREPARING, *_STARTED, JobState.STOPPING)

# The states that expect each event; an event for a job in a later state of the same attempt is late.
_AWAITED: Mapping[tuple[JobState, type[Event]], Handler] = {
    (JobState.QUEUED, QuotaReserved): _admit,
    (JobState.QUEUED, QuotaRefused): _explain,
    (JobState.ADMITTED, BuildStarted): _build,
    (JobState.BUILDING, Built): _launch,
    (JobState.BUILDING, BuildFailed): _stop_because(Reason.BUILD_FAILED),
    (JobState.LAUNCHING, Launched): _await_registration,
    (JobState.LAUNCHING, LaunchFailed): _launch_failed,
    (JobState.REGISTERING, AllRegistered): _run,
    **{(state, StrengthChanged): _explain for state in _STARTED},
    **{(state, AttemptEnded): _stop_at_end for state in (*_PREPARING, *_STARTED)},
    (JobState.QUEUED, CancelRequested): _cancel_waiting,
    **{(state, CancelRequested): _stop_because(Reason.CANCELLED) for state in (*_PREPARING, *_STARTED)},
    **{(state, Interrupted): _stop_because(Reason.INTERRUPTED) for state in (*_PREPARING, *_STARTED)},
    **{(state, Preempted): _stop_because(Reason.PREEMPTED) for state in (*_PREPARING, *_STARTED)},
    (JobState.STOPPING, Drained): _finish_or_requeue,
    **{(state, RetryRequested): _retry for state in TERMINAL},
}


def _late_pairs() -> Iterator[tuple[JobState, type[Event]]]:
    for state, kind in _AWAITED:
        if state in TERMINAL:
            continue
        for later in (*_ORDER[_ORDER.index(state) + 1 :], *sorted(TERMINAL)):
            if (later, kind) not in _AWAITED:
                yield later, kind


TRANSITIONS: Mapping[tuple[JobState, type[Event]], Handler] = {**_AWAITED, **dict.fromkeys(_late_pairs(), _late)}
