"""The reconciler: the only caller of ``state_machine.step`` and the only writer of ``Job.state``.

One turn loads the job and the facts, derives an event and calls ``step``. It applies the outcome by compare-and-set on
``Job.revision``, with the Transition row and the immediate effects, in one transaction. Turns repeat until nothing is
left to do. The backend and the builder are called only between transactions. Any number of reconcilers may run at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef, AttemptView, BackendUnavailable, LaunchFailed, Phase
from jobs.frameworks.definitions import meets_once
from jobs.lifecycle import desired_replicas, fault_injection
from jobs.lifecycle.cluster_starts import adoptions as adoptions_of
from jobs.lifecycle.holds import Held
from jobs.lifecycle.observations import Facts, Policy, events_from, merge
from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.progress.reported import Reported
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.replica_facts import RESTARTS, ReplicaFact, ending
from jobs.lifecycle.state_machine import (
    CancelRequested,
    CloseAttempt,
    Event,
    JobView,
    QuotaRefused,
    Reserve,
    Step,
    effects_due,
    step,
)
from jobs.lifecycle.states import HOLDS_QUOTA, TERMINAL, JobState, ReplicaState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, JobEvent, Replica, Transition
from jobs.reconcile import cluster_starts, effects, job_spans, measurements, stopping
from jobs.reconcile.cluster_starts import FRESH
from jobs.selectors import attempts
from jobs.spec import stall_actions
from jobs.spec.quantities import span
from portal.common.clock import now as wall_clock
from portal.common.monitoring import log_context
from quota.selectors import recall_of
from rbac.audit import restorations
from rbac.models import User
from runtime import contract

_log = logging.getLogger(__name__)

# A job passes through fewer states than this between two waits; more turns mean a bug of the platform.
MOST_TURNS = 40
Clock = Callable[[], datetime]


class Outcome(Enum):
    APPLIED = "applied"
    EXPLAINED = "explained"  # the state stays, with another message
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"  # another process has changed the job since it was loaded


# A new message is no progress.
_WAITS_ON = frozenset({Outcome.EXPLAINED, Outcome.UNCHANGED})


@dataclass(frozen=True)
class Loaded:
    """A job with its present attempt and replicas, as loaded at the beginning of a turn, and the time of that."""

    job: Job
    view: JobView
    attempt: Attempt | None
    replicas: tuple[Replica, ...]
    at: datetime = field(default_factory=wall_clock)


# --- One job ---------------------------------------------------------------------------------------------------------
def reconcile(
    job_id: UUID | str, *, clock: Clock = wall_clock, rest: frozenset[JobState] = TERMINAL
) -> JobState | None:
    """Reconcile the job until it waits for something or has ended, and return its state.

    Returns None if there is no such job. A job in a state of ``rest`` is left unchanged.
    """
    with log_context.use(job=str(job_id)):
        state: JobState | None = None
        for _ in range(MOST_TURNS):
            loaded = load(job_id)
            if loaded is None:
                return None
            state = loaded.view.state
            log_context.note(attempt=loaded.view.attempt)
            if trace := job_spans.trace_of(loaded.job):
                log_context.note(trace_id=trace.trace_id)
            if state in rest or not _turn(loaded, clock):
                return state
        _log.error("Job %s was not at rest after %d turns; the sweep goes on with it.", job_id, MOST_TURNS)
        return state


def cause(job_id: UUID | str, kind: type[Event], *, why: str = "", actor: User | None = None) -> bool:
    """Apply an event from outside. Return False if there is no such job or its state leaves nothing to do.

    Raises lifecycle.InvalidTransition if the event cannot happen in this state.
    """
    while True:
        loaded = load(job_id)
        if loaded is None:
            return False
        outcome = apply(loaded, kind(loaded.view.attempt, why), actor=actor)
        if outcome is not Outcome.CONFLICT:
            return outcome is Outcome.APPLIED


def _turn(loaded: Loaded, clock: Clock) -> bool:
    """Run one turn. Return False if nothing is left to do now."""
    now = clock()
    unlaunched = _ends_before_launch(loaded)
    if unlaunched:
        # Here and not as an effect of STOPPING: such an attempt leaves the state in this turn.
        stopping.give_up_build(loaded.job)
    facts = _facts(loaded, unlaunched=unlaunched)
    if loaded.attempt and (adoptions := adoptions_of(loaded.view, facts.replicas, facts.view)):
        cluster_starts.adopt(loaded.job, loaded.attempt, adoptions, now)
        return True
    _note(loaded, facts, now)
    for event in events_from(loaded.view, facts, now, policy()):
        if apply(loaded, event, clock, actor=_actor_of(event, loaded.job)) is not Outcome.UNCHANGED:
            return True
    if loaded.view.state is JobState.RUNNING and (_staff(loaded, facts, now) or _rehearse(loaded, facts, now)):
        return True
    return _work(loaded, clock)


def skip_numbers(job: Job, last: int) -> bool:
    """Give the next attempt of a queued job the number after ``last``. Return False if the job has changed since.

    For a database that was restored to an earlier state: attempts that it does not know have used the numbers.
    """
    waits = Job.objects.filter(pk=job.pk, revision=job.revision, state=JobState.QUEUED, attempt__lte=last)
    return waits.update(attempt=last + 1, revision=F("revision") + 1) == 1


# --- Desired replicas ------------------------------------------------------------------------------------------------
def _staff(loaded: Loaded, facts: Facts, now: datetime) -> bool:
    """Create and remove replicas to match the desired ones: in the rows, then at the backend.

    Return True if rows were changed.
    """
    merged = merge(facts.replicas, facts.view)
    wanted = desired_replicas.changes(loaded.view, merged, now)
    if wanted:
        _write_staff(loaded, wanted, [fact for fact in merged if fact.name in wanted.replace], now)
        return True
    if facts.view is not None and loaded.attempt is not None:
        try:
            _bring_about(loaded, loaded.attempt, facts.view, merged)
        except (LaunchFailed, OSError) as problem:
            _log.warning("Job %s could not be given its replicas; the sweep tries again. %s", loaded.job.pk, problem)
    return False


@transaction.atomic
def _write_staff(
    loaded: Loaded, wanted: desired_replicas.Changes, replaced: Sequence[ReplicaFact], now: datetime
) -> None:
    """Write the changes of replicas. Write nothing if another process has changed the job since it was loaded."""
    job = loaded.job
    if not Job.objects.filter(pk=job.pk, revision=job.revision).update(revision=F("revision") + 1):
        return
    rows = Replica.objects.filter(attempt=loaded.attempt)
    rows.bulk_create(
        Replica(attempt=loaded.attempt, name=f"{contract.TRAINER}-{index}", role=contract.TRAINER, index=index)
        for index in wanted.start
    )
    rows.filter(name__in=wanted.dismiss).update(dismissed=True)
    rows.filter(name__in=wanted.return_).update(start_number=F("start_number") + 1, **FRESH)
    for fact in replaced:
        restarts = fact.restarts + (not fact.rehearsed)
        rows.filter(name=fact.name).update(start_number=F("start_number") + 1, restarts=restarts, **FRESH)
        how = messages.FAILURE_REHEARSAL() if fact.rehearsed else f"{restarts} of {RESTARTS[fact.role]}"
        text = messages.RESTARTED_BECAUSE(ending=ending(fact), why=how)
        JobEvent.objects.create(job=job, attempt=job.attempt, at=now, replica=fact.name, kind="restarted", text=text)
    effects.publish(job)


def _rehearse(loaded: Loaded, facts: Facts, now: datetime) -> bool:
    """Kill the replica that is due in a rehearsal of failure. Return True if a replica was killed."""
    job = loaded.job
    if job.rehearsal is None or loaded.attempt is None:
        return False
    rehearsal = fault_injection.Rehearsal.from_json(job.rehearsal)
    victim = fault_injection.victim(rehearsal, merge(facts.replicas, facts.view), now)
    if victim is None or not _write_rehearsal(loaded, rehearsal, victim, now):
        return False
    backend_factory.current().kill(attempts.ref_of(job, loaded.attempt), victim.name)
    return True


@transaction.atomic
def _write_rehearsal(loaded: Loaded, rehearsal: fault_injection.Rehearsal, victim: ReplicaFact, now: datetime) -> bool:
    """Write the kill. Return False if another process has changed the job since it was loaded."""
    job, after = loaded.job, rehearsal.next(now)
    kept = {"rehearsal": after.to_json() if after else None, "revision": F("revision") + 1}
    if not Job.objects.filter(pk=job.pk, revision=job.revision).update(**kept):
        return False
    Replica.objects.filter(attempt=loaded.attempt, name=victim.name, start_number=victim.start_number).update(
        rehearsed=True
    )
    text = messages.REHEARSAL_KILL(
        replica=victim.name, name=rehearsal.by, number=rehearsal.done + 1, most=fault_injection.MOST_KILLS
    )
    JobEvent.objects.create(job=job, attempt=job.attempt, at=now, replica=victim.name, kind="rehearsal", text=text)
    effects.publish(job)
    return True


def _bring_about(loaded: Loaded, attempt: Attempt, view: AttemptView, merged: Sequence[ReplicaFact]) -> None:
    """Scale and restart replicas at the backend where it differs from the rows. Every turn compares them again."""
    backend, ref = backend_factory.current(), attempts.ref_of(loaded.job, attempt)
    known = {fact.name: fact for fact in map(replica_fact, loaded.replicas)}
    seen = {replica.name: replica for replica in view.replicas}
    missing = any(fact.name not in seen and not fact.dismissed for fact in known.values())
    surplus = any(fact.name in seen and fact.dismissed and seen[fact.name].phase in _ALIVE for fact in known.values())
    surplus = surplus or _has_unknown_trainer(loaded.job, view, known)
    if missing or surplus:
        backend.scale(ref, contract.TRAINER, desired_replicas.trainer_count(tuple(known.values())))
    for fact in known.values():
        if fact.name in seen and seen[fact.name].start_number < fact.start_number and not fact.ended:
            backend.restart(ref, fact.name, fact.start_number)
    cluster_starts.grant(backend, ref, loaded.view, merged, view)


_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING})


def _has_unknown_trainer(job: Job, view: AttemptView, known: Mapping[str, ReplicaFact]) -> bool:
    """Return whether a trainer runs that has no row: the database was restored to a state with fewer trainers.

    The rows are those of the view only if no other process has changed the job since they were loaded.
    """
    unknown = any(
        one.name not in known and one.name.startswith(contract.TRAINER) and one.phase in _ALIVE for one in view.replicas
    )
    return unknown and Job.objects.filter(pk=job.pk, revision=job.revision).exists()


def _work(loaded: Loaded, clock: Clock) -> bool:
    """Perform the standing effects that are due in the state. Return True if the job has changed."""
    for effect in effects_due(loaded.view):
        if isinstance(effect, Reserve):
            return _reserve(loaded, effect, clock)
        event = effects.perform(effect, loaded.job)
        if event is not None and apply(loaded, event, clock) not in _WAITS_ON:
            return True
    return False


def _reserve(loaded: Loaded, effect: Reserve, clock: Clock) -> bool:
    """Reserve the quota. The reservation and the state that holds it are committed together or not at all."""
    with transaction.atomic():
        event = effects.perform(effect, loaded.job)
        outcome = apply(loaded, event, clock) if event else Outcome.UNCHANGED
        if outcome is Outcome.CONFLICT:
            transaction.set_rollback(True)
    return outcome not in _WAITS_ON


def policy() -> Policy:
    return Policy(registration=timedelta(seconds=settings.REGISTRATION_SECONDS))


def _actor_of(event: Event, job: Job) -> User | None:
    return job.cancelled_by if isinstance(event, CancelRequested) else None


# --- Loading ---------------------------------------------------------------------------------------------------------
def load(job_id: UUID | str) -> Loaded | None:
    job = Job.objects.select_related("namespace", "owner", "snapshot", "cancelled_by").filter(pk=job_id).first()
    if job is None:
        return None
    attempt = attempts.present_attempt(job)
    replicas = tuple(attempt.replicas.order_by("id")) if attempt else ()
    return Loaded(job, view_of(job, attempt), attempt, replicas)


def view_of(job: Job, attempt: Attempt | None) -> JobView:
    return JobView(
        id=str(job.pk),
        state=JobState(job.state),
        attempt=job.attempt,
        changed=job.changed,
        reason=Reason(job.reason) if job.reason else None,
        why=job.why,
        started=job.started,
        finished=job.finished,
        admitted=attempt.created if attempt else None,
        retries=job.spec["retries"],
        requeues=job.requeues,
        timeout=span(job.spec["timeout"]),
        trainers=attempts.spec_of(job).trainer.replicas,
        min_trainers=job.spec["roles"]["trainer"]["min"],
        together=meets_once(job.spec["framework"], job.spec["roles"]["pserver"]["replicas"]),
        pause=Pause.from_json(attempt.pause) if attempt else None,
    )


def _facts(loaded: Loaded, *, unlaunched: bool) -> Facts:
    job = loaded.job
    requested = job.cancel_requested is not None
    return Facts(
        cancelled_by=(job.cancelled_by.username if job.cancelled_by else "the platform") if requested else "",
        recalled=recall_of(job.pk, job.attempt) if loaded.view.state in HOLDS_QUOTA else "",
        stalled=Reported.from_json(loaded.attempt.progress).stall if loaded.attempt else "",
        fails_when_stalled=attempts.spec_of(job).on_stall == stall_actions.FAIL,
        replicas=tuple(replica_fact(row) for row in loaded.replicas),
        view=_observe(loaded, unlaunched=unlaunched),
    )


def _observe(loaded: Loaded, *, unlaunched: bool) -> AttemptView | None:
    if loaded.view.state not in attempts.OBSERVED:
        return None
    if loaded.attempt is None or unlaunched:
        return AttemptView(gone=True)
    return seen_of(attempts.ref_of(loaded.job, loaded.attempt))


def _ends_before_launch(loaded: Loaded) -> bool:
    view = loaded.view
    return view.state is JobState.STOPPING and not attempts.was_launched(loaded.job, view.attempt)


def seen_of(ref: AttemptRef) -> AttemptView | None:
    try:
        return backend_factory.current().observe(ref)
    except BackendUnavailable as problem:
        _log.warning("Nothing is seen of the replicas of job %s. %s", ref.job_id, problem)
        return None


def replica_fact(row: Replica) -> ReplicaFact:
    return ReplicaFact(
        name=row.name,
        role=row.role,
        state=ReplicaState(row.state),
        code=row.code,
        signal=row.signal,
        out_of_memory=row.out_of_memory,
        why=row.why,
        registered=row.registered is not None,
        since=row.registered,
        flushed=row.flushed,
        start_number=row.start_number,
        dismissed=row.dismissed,
        restarts=row.restarts,
        rehearsed=row.rehearsed,
        finished=row.finished,
        held=Held.from_json(row.held),
    )


def _note(loaded: Loaded, facts: Facts, now: datetime) -> None:
    """Store what the backend observed and no agent has reported, for readers of the replicas."""
    if facts.view is None:
        return
    changed = 0
    never_started = ReplicaState.WAITING if loaded.view.state is JobState.STOPPING else None
    # Of a restored database; other starts are adopted while the job runs (``cluster_starts``).
    seen = {replica.name: replica.start_number for replica in facts.view.replicas}
    for row, fact in zip(loaded.replicas, merge(facts.replicas, facts.view), strict=True):
        if (number := seen.get(row.name, 0)) > row.start_number and restorations.EPOCH.current():
            cluster_starts.adopt_after_restore(row, number)
            changed += 1
            continue
        if fact.state == row.state and fact.why != row.why and not fact.ended:
            changed += Replica.objects.filter(pk=row.pk, state=row.state).update(why=fact.why)
        if fact.state == row.state or row.state == never_started:
            continue
        began = {"started": row.started or now, "registered": row.registered or now} if not fact.ended else {}
        changed += Replica.objects.filter(pk=row.pk, state=row.state).update(
            state=fact.state,
            **began,
            code=fact.code,
            signal=fact.signal,
            out_of_memory=fact.out_of_memory,
            why=fact.why,
            finished=now if fact.ended else None,
        )
    if changed:
        effects.publish(loaded.job)


# --- Applying --------------------------------------------------------------------------------------------------------
def apply(loaded: Loaded, event: Event, clock: Clock = wall_clock, *, actor: User | None = None) -> Outcome:
    """Call ``step`` with the event and write the outcome, if the job is still as it was loaded."""
    now = clock()
    outcome = step(loaded.view, event, now)
    if outcome.job == loaded.view and not outcome.effects:
        return Outcome.UNCHANGED
    with transaction.atomic():
        if not _write(loaded.job, outcome):
            return Outcome.CONFLICT
        if outcome.job.state is not loaded.view.state:
            _transition(loaded, outcome, now, actor).save()
        for effect in outcome.effects:
            effects.commit(effect, loaded.job)
    measurements.note(loaded.view, event, outcome.job, now)
    job_spans.note(loaded.job, loaded.view, outcome.job, loaded.at, now)
    if any(isinstance(effect, CloseAttempt) for effect in outcome.effects):
        stopping.cleanup_attempt(loaded.job, loaded.view.attempt, over=outcome.job.state is JobState.SUCCEEDED)
    return Outcome.EXPLAINED if outcome.job.state is loaded.view.state else Outcome.APPLIED


@dataclass(frozen=True)
class Written:
    """A step that was written. Its immediate effects are still to be committed, in the same transaction."""

    loaded: Loaded
    outcome: Step


def write_together(moves: Sequence[tuple[Loaded, Event]], now: datetime) -> list[Written]:
    """Step many jobs into other states. Write those that are still as they were loaded, with their Transitions.

    Runs in the caller's transaction, which must also commit the effects with ``effects.commit_together``.
    """
    steps = ((loaded, event, step(loaded.view, event, now)) for loaded, event in moves)
    written = []
    for loaded, event, outcome in steps:
        if _write(loaded.job, outcome):
            written.append(Written(loaded, outcome))
            measurements.note(loaded.view, event, outcome.job, now)
            job_spans.note(loaded.job, loaded.view, outcome.job, loaded.at, now)
    Transition.objects.bulk_create(_transition(each.loaded, each.outcome, now, None) for each in written)
    return written


class Waiter(NamedTuple):
    """The columns of a waiting job that its explanation depends on."""

    job: UUID
    attempt: int
    revision: int
    why: str
    changed: datetime
    namespace: str


def explain_together(refusals: Sequence[tuple[Waiter, str]], now: datetime) -> list[Waiter]:
    """Write why jobs wait, in one transaction. A job that another process has changed since it was read stays as it is.

    Returns the jobs whose explanation has changed.
    """
    changed = []
    for waiter, why in refusals:
        view = JobView(str(waiter.job), JobState.QUEUED, waiter.attempt, waiter.changed, why=waiter.why)
        outcome = step(view, QuotaRefused(waiter.attempt, why), now)
        if outcome.job != view:
            changed.append((waiter, outcome.job.why))
    identifier = Job._meta.pk
    rows = [(why, identifier.get_db_prep_value(each.job, connection), each.revision) for each, why in changed]
    with transaction.atomic(), connection.cursor() as cursor:
        table = connection.ops.quote_name(Job._meta.db_table)
        sql = f"UPDATE {table} SET why = %s, revision = revision + 1 WHERE id = %s AND revision = %s"  # noqa: S608
        cursor.executemany(sql, rows)
    return [waiter for waiter, _ in changed]


def _write(job: Job, outcome: Step) -> bool:
    after = outcome.job
    written = Job.objects.filter(pk=job.pk, revision=job.revision).update(
        state=after.state,
        reason=after.reason or "",
        why=after.why,
        attempt=after.attempt,
        requeues=dict(after.requeues),
        changed=after.changed,
        started=after.started,
        finished=after.finished,
        revision=F("revision") + 1,
    )
    return written == 1


def _transition(loaded: Loaded, outcome: Step, now: datetime, actor: User | None) -> Transition:
    return Transition(
        job=loaded.job,
        attempt=outcome.job.attempt,
        at=now,
        old=loaded.view.state,
        state=outcome.job.state,
        reason=outcome.job.reason or loaded.view.reason or "",
        why=outcome.why,
        actor=actor,
    )
