"""Moves jobs on. The only caller of ``lifecycle.step`` and the only writer of ``Job.state``.

One turn: load the job and the facts, derive an event, step, apply by compare-and-set on ``Job.revision`` with the
Transition row and the immediate effects, in one transaction. Then look again, until nothing is left to do. The backend
and the builder are only ever called between transactions. Any number of reconcilers may work at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from jobs import effects, elasticity, rehearsal, staffing
from jobs.backends import registry
from jobs.backends.base import AttemptRef, AttemptView, BackendUnavailable, LaunchFailed, Phase
from jobs.facts import RESTARTS, Facts, Policy, ReplicaFact, ending, events_from, merge
from jobs.frameworks.table import meets_once
from jobs.lifecycle import (
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
from jobs.models import Attempt, Job, JobEvent, Replica, Transition
from jobs.quantities import span
from jobs.reasons import Reason
from jobs.states import ACTIVE, HOLDS_QUOTA, TERMINAL, JobState, ReplicaState
from jobs.steadiness import Reading, ReplicaReading, Watch
from portal.common.time import now as wall_clock
from quota import ledger
from quota.selectors import recall_of, recalls
from rbac.models import User
from runtime import contract

_log = logging.getLogger(__name__)

# A job passes through fewer states than this between two waits; more turns mean a fault of ours.
MOST_TURNS = 40
Clock = Callable[[], datetime]


class Outcome(Enum):
    APPLIED = "applied"
    TOLD = "told"  # the state stays, with another sentence
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"  # somebody else has moved the job since it was loaded


# A new sentence is no progress.
_WAITS_ON = frozenset({Outcome.TOLD, Outcome.UNCHANGED})


@dataclass(frozen=True)
class Loaded:
    """A job with all that its life depends on."""

    job: Job
    view: JobView
    attempt: Attempt | None
    replicas: tuple[Replica, ...]


# --- One job ---------------------------------------------------------------------------------------------------------
def reconcile(
    job_id: UUID | str, *, clock: Clock = wall_clock, rest: frozenset[JobState] = TERMINAL
) -> JobState | None:
    """Move the job on until it waits for something, or has ended; its state then. None: there is no such job.

    In the states of ``rest`` it is left alone.
    """
    state: JobState | None = None
    for _ in range(MOST_TURNS):
        loaded = load(job_id)
        if loaded is None:
            return None
        state = loaded.view.state
        if state in rest or not _turn(loaded, clock):
            return state
    _log.error("Job %s was not at rest after %d turns; the sweep goes on with it.", job_id, MOST_TURNS)
    return state


def cause(job_id: UUID | str, kind: type[Event], *, why: str = "", actor: User | None = None) -> bool:
    """Bring an event from outside about. False where the job's state leaves nothing to do.

    Raises lifecycle.InvalidTransition where it cannot happen in this state.
    """
    while True:
        loaded = load(job_id)
        if loaded is None:
            return False
        outcome = apply(loaded, kind(loaded.view.attempt, why), actor=actor)
        if outcome is not Outcome.CONFLICT:
            return outcome is Outcome.APPLIED


def _turn(loaded: Loaded, clock: Clock) -> bool:
    """One step on. False where nothing is left to do now."""
    now = clock()
    facts = _facts(loaded)
    _note(loaded, facts, now)
    for event in events_from(loaded.view, facts, now, policy()):
        if apply(loaded, event, clock, actor=_actor_of(event, loaded.job)) is not Outcome.UNCHANGED:
            return True
    if loaded.view.state is JobState.RUNNING and (_staff(loaded, facts, now) or _rehearse(loaded, facts, now)):
        return True
    return _work(loaded, clock)


# --- Who should be there ---------------------------------------------------------------------------------------------
def _staff(loaded: Loaded, facts: Facts, now: datetime) -> bool:
    """Have the replicas that should be there: in the rows, then at the backend. True where rows were changed."""
    merged = merge(facts.replicas, facts.view)
    wanted = staffing.changes(loaded.view, merged, now)
    if wanted:
        _write_staff(loaded, wanted, [fact for fact in merged if fact.name in wanted.replace], now)
        return True
    if facts.view is not None and loaded.attempt is not None:
        try:
            _bring_about(loaded, loaded.attempt, facts.view)
        except (LaunchFailed, OSError):
            _log.warning("Job %s could not be given its replicas; the sweep tries again.", loaded.job.pk, exc_info=True)
    return False


@transaction.atomic
def _write_staff(loaded: Loaded, wanted: staffing.Changes, replaced: Sequence[ReplicaFact], now: datetime) -> None:
    """Nothing is written where somebody else has moved the job since it was loaded."""
    job = loaded.job
    if not Job.objects.filter(pk=job.pk, revision=job.revision).update(revision=F("revision") + 1):
        return
    rows = Replica.objects.filter(attempt=loaded.attempt)
    rows.bulk_create(
        Replica(attempt=loaded.attempt, name=f"{contract.TRAINER}-{index}", role=contract.TRAINER, index=index)
        for index in wanted.hire
    )
    rows.filter(name__in=wanted.dismiss).update(dismissed=True)
    rows.filter(name__in=wanted.return_).update(life=F("life") + 1, **_FRESH)
    for fact in replaced:
        restarts = fact.restarts + (not fact.rehearsed)
        rows.filter(name=fact.name).update(life=F("life") + 1, restarts=restarts, **_FRESH)
        how = "as it was rehearsed" if fact.rehearsed else f"{restarts} of {RESTARTS[fact.role]}"
        text = f"{ending(fact)}; started again ({how})."
        JobEvent.objects.create(job=job, attempt=job.attempt, at=now, replica=fact.name, kind="restarted", text=text)
    effects.publish(job)


# What a replica's row holds at the beginning of a life.
_FRESH: Mapping[str, Any] = {
    "state": ReplicaState.WAITING,
    "why": "",
    "code": None,
    "signal": None,
    "out_of_memory": False,
    "heartbeat": None,
    "flushed": False,
    "dismissed": False,
    "rehearsed": False,
    "started": None,
    "registered": None,
    "finished": None,
}


def _rehearse(loaded: Loaded, facts: Facts, now: datetime) -> bool:
    """Kill who is due in a rehearsal of failure. True where somebody was."""
    job = loaded.job
    if job.rehearsal is None or loaded.attempt is None:
        return False
    wish = rehearsal.Rehearsal.from_json(job.rehearsal)
    victim = rehearsal.victim(wish, merge(facts.replicas, facts.view), now)
    if victim is None or not _write_rehearsal(loaded, wish, victim, now):
        return False
    registry.current().kill(effects.ref_of(job, loaded.attempt), victim.name)
    return True


@transaction.atomic
def _write_rehearsal(loaded: Loaded, wish: rehearsal.Rehearsal, victim: ReplicaFact, now: datetime) -> bool:
    """False where somebody else has moved the job since it was loaded."""
    job, after = loaded.job, wish.next(now)
    kept = {"rehearsal": after.to_json() if after else None, "revision": F("revision") + 1}
    if not Job.objects.filter(pk=job.pk, revision=job.revision).update(**kept):
        return False
    Replica.objects.filter(attempt=loaded.attempt, name=victim.name, life=victim.life).update(rehearsed=True)
    text = f"{victim.name} is killed: {wish.by} rehearses failure ({wish.done + 1} of {rehearsal.MOST_KILLS})."
    JobEvent.objects.create(job=job, attempt=job.attempt, at=now, replica=victim.name, kind="rehearsal", text=text)
    effects.publish(job)
    return True


def _bring_about(loaded: Loaded, attempt: Attempt, view: AttemptView) -> None:
    """Have the backend do what it has not done yet: every turn compares anew what is wanted with what it shows."""
    backend, ref = registry.current(), effects.ref_of(loaded.job, attempt)
    known = {fact.name: fact for fact in map(replica_fact, loaded.replicas)}
    seen = {replica.name: replica for replica in view.replicas}
    missing = any(fact.name not in seen and not fact.dismissed for fact in known.values())
    surplus = any(fact.name in seen and fact.dismissed and seen[fact.name].phase in _ALIVE for fact in known.values())
    if missing or surplus:
        backend.scale(ref, contract.TRAINER, staffing.headcount(tuple(known.values())))
    for fact in known.values():
        if fact.name in seen and seen[fact.name].life < fact.life and not fact.ended:
            backend.restart(ref, fact.name, fact.life)


_ALIVE = frozenset({Phase.STARTING, Phase.RUNNING})


def _work(loaded: Loaded, clock: Clock) -> bool:
    """Do what the state still has to get done. True where something came of it."""
    for effect in effects_due(loaded.view):
        if isinstance(effect, Reserve):
            return _reserve(loaded, effect, clock)
        event = effects.perform(effect, loaded.job)
        if event is not None and apply(loaded, event, clock) not in _WAITS_ON:
            return True
    return False


def _reserve(loaded: Loaded, effect: Reserve, clock: Clock) -> bool:
    """The reservation and the state that holds it are committed together or not at all."""
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
    attempt = effects.present_attempt(job)
    replicas = tuple(attempt.replicas.order_by("id")) if attempt else ()
    return Loaded(job, _view(job, attempt), attempt, replicas)


def _view(job: Job, attempt: Attempt | None) -> JobView:
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
        trainers=effects.spec_of(job).trainer.replicas,
        min_trainers=job.spec["roles"]["trainer"]["min"],
        together=meets_once(job.spec["framework"], job.spec["roles"]["pserver"]["replicas"]),
    )


def _facts(loaded: Loaded) -> Facts:
    job = loaded.job
    wished = job.cancel_requested is not None
    return Facts(
        cancelled_by=(job.cancelled_by.username if job.cancelled_by else "the platform") if wished else "",
        recalled=recall_of(job.pk, job.attempt) if loaded.view.state in HOLDS_QUOTA else "",
        replicas=tuple(replica_fact(row) for row in loaded.replicas),
        view=_observe(loaded),
    )


def _observe(loaded: Loaded) -> AttemptView | None:
    if loaded.view.state not in effects.OBSERVED:
        return None
    if loaded.attempt is None:
        return AttemptView(gone=True)
    return _seen_of(effects.ref_of(loaded.job, loaded.attempt))


def _seen_of(ref: AttemptRef) -> AttemptView | None:
    try:
        return registry.current().observe(ref)
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
        life=row.life,
        dismissed=row.dismissed,
        restarts=row.restarts,
        rehearsed=row.rehearsed,
        finished=row.finished,
    )


def _note(loaded: Loaded, facts: Facts, now: datetime) -> None:
    """Write down what the backend saw and no agent has reported, for those who look at the replicas."""
    if facts.view is None:
        return
    changed = 0
    never_started = ReplicaState.WAITING if loaded.view.state is JobState.STOPPING else None
    for row, fact in zip(loaded.replicas, merge(facts.replicas, facts.view), strict=True):
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
    """Step and write, if the job is still as it was loaded."""
    now = clock()
    outcome = step(loaded.view, event, now)
    if outcome.job == loaded.view and not outcome.effects:
        return Outcome.UNCHANGED
    with transaction.atomic():
        if not _write(loaded.job, outcome):
            return Outcome.CONFLICT
        if outcome.job.state is not loaded.view.state:
            _remember(loaded, outcome, now, actor)
        for effect in outcome.effects:
            effects.commit(effect, loaded.job)
    if any(isinstance(effect, CloseAttempt) for effect in outcome.effects):
        effects.tidy(loaded.job, loaded.view.attempt, over=outcome.job.state is JobState.SUCCEEDED)
    return Outcome.TOLD if outcome.job.state is loaded.view.state else Outcome.APPLIED


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


def _remember(loaded: Loaded, outcome: Step, now: datetime, actor: User | None) -> None:
    Transition.objects.create(
        job=loaded.job,
        attempt=outcome.job.attempt,
        at=now,
        old=loaded.view.state,
        state=outcome.job.state,
        reason=outcome.job.reason or loaded.view.reason or "",
        why=outcome.why,
        actor=actor,
    )


# --- All jobs --------------------------------------------------------------------------------------------------------
def sweep(now: datetime, watch: Watch | None = None) -> int:
    """Look at every active job once; the number of them. One query where there is none.

    Of those that wait for quota only the ones are looked at by themselves whose turn it is: one decision is made about
    all of them together. Of those that run, ``watch`` (kept from sweep to sweep) skips the ones in which nothing has
    changed. A job that cannot be moved on does not hold up the others.
    """
    watch = watch or Watch()
    jobs = Job.objects.filter(state__in=ACTIVE).order_by("created")
    rows = list(jobs.values_list("pk", "attempt", "state", "why", "cancel_requested"))
    waiting = {(pk, attempt): why for pk, attempt, state, why, wish in rows if state == JobState.QUEUED and not wish}
    running = _readings() if any(state == JobState.RUNNING for _, _, state, *_ in rows) else {}
    for pk, attempt, *_ in rows:
        if pk in running:
            _one(partial(_look_at, pk, running[pk], watch, now), pk)
        elif (pk, attempt) not in waiting:
            _one(partial(reconcile, pk, clock=lambda: now), pk)
    watch.keep_only(running)
    if waiting:
        _admit(waiting, now)
    return len(rows)


# What a sweep reads of a running job: its reading but for what the backend sees, where to ask for that, and by when the
# attempt must have ended.
_Row = tuple[Callable[[AttemptView | None], Reading], AttemptRef, Callable[[], datetime]]


def _readings() -> dict[UUID, _Row]:
    """Of all running jobs, in three queries. What the backend sees is asked later, for each by itself."""
    running = Job.objects.filter(state=JobState.RUNNING)
    replicas: dict[UUID, list[ReplicaReading]] = {}
    rows = Replica.objects.filter(attempt__job__in=running, attempt__number=F("attempt__job__attempt")).order_by("pk")
    for attempt, *columns in rows.values_list("attempt_id", *ReplicaReading._fields):
        replicas.setdefault(attempt, []).append(ReplicaReading(*columns))
    recalled = recalls()
    attempts = Attempt.objects.filter(job__in=running, number=F("job__attempt"))
    names = ("pk", "number", "created", *(f"job__{name}" for name in _JOB))
    found: dict[UUID, _Row] = {}
    for pk, number, created, job, revision, cancelled, rehearsal_, timeout, room in attempts.values_list(*names):
        quiet = cancelled is None and rehearsal_ is None and (job, number) not in recalled
        members = tuple(replicas.get(pk, ()))
        reading = partial(Reading, JobState.RUNNING, revision, quiet, members)
        found[job] = reading, AttemptRef(str(job), str(pk), number, room), partial(_deadline, created, timeout)
    return found


_JOB = ("id", "revision", "cancel_requested", "rehearsal", "spec__timeout", "namespace__name")


def _deadline(created: datetime, timeout: str) -> datetime:
    return created + span(timeout)


def _look_at(job_id: UUID, row: _Row, watch: Watch, now: datetime) -> None:
    """Reconcile a running job unless nothing has changed since that was done last."""
    reading_with, ref, deadline = row
    reading = reading_with(_seen_of(ref))
    if not watch.skips(job_id, reading, now):
        reconcile(job_id, clock=lambda: now)
        watch.reconciled(job_id, reading, now, deadline)


def _admit(waiting: Mapping[tuple[UUID, int], str], now: datetime) -> None:
    """Start those whose turn it is, in order, and tell the others what they wait for."""
    seen = ledger.review(now, least=elasticity.least_held())
    unknown = [key for key in waiting if key not in seen.told and key not in seen.granted]
    for pk, attempt in (*seen.granted, *unknown):
        if (pk, attempt) in waiting:
            _one(partial(reconcile, pk, clock=lambda: now), pk)
    for key, told in seen.told.items():
        why = effects.waiting(told)
        if waiting.get(key, why) != why:
            _one(partial(_explain, *key, why), key[0])


def _explain(job_id: UUID, attempt: int, why: str) -> None:
    loaded = load(job_id)
    if loaded is not None and loaded.view.state is JobState.QUEUED:
        apply(loaded, QuotaRefused(attempt, why))


def _one(move: Callable[[], object], job_id: UUID) -> None:
    try:
        move()
    except Exception:  # noqa: BLE001  whatever it is, it is about this job alone
        _log.exception("Job %s could not be moved on; the next sweep tries again.", job_id)
