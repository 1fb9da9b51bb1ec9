"""Events of a job from the observations of its attempt. Pure.

A replica has two sources: the reports that its agent sends through ingest, and the view of the backend. ``merge``
combines them, and ``events_from`` derives the job's events. ``attempt_end`` decides whether the attempt is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle import attempt_end, holds
from jobs.lifecycle.holds import Held
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.replica_facts import ReplicaFact, ending, present_trainers, recovering
from jobs.lifecycle.state_machine import (
    AllRegistered,
    AttemptEnded,
    BuildStarted,
    CancelRequested,
    Drained,
    Event,
    JobView,
    Preempted,
    StrengthChanged,
)
from jobs.lifecycle.states import TERMINAL, JobState, ReplicaState
from jobs.lifecycle.wording import in_words
from jobs.lifecycle.wording import trainers as trainers_in_words
from jobs.messages import jobs as messages
from runtime import contract
from runtime.messages import Template, paragraph
from runtime.messages.composition import clauses, enumerated, prefixed, with_full_stop, without_full_stop

_STARTED = (JobState.REGISTERING, JobState.RUNNING)


@dataclass(frozen=True)
class Facts:
    """Observations of a job beside its row.

    ``recalled``: why the quota reclaims the capacity that the attempt borrowed; empty: it does not. ``stalled``:
    the message of a stall that was reported, or empty; ``fails_when_stalled``: the attempt ends with it. ``view`` is
    None if the backend was not queried or did not answer.
    """

    cancelled_by: str = ""
    recalled: str = ""
    stalled: str = ""
    fails_when_stalled: bool = False
    replicas: tuple[ReplicaFact, ...] = ()
    view: AttemptView | None = None


@dataclass(frozen=True)
class Policy:
    """Timeouts of an attempt.

    * ``registration``: for replicas to register.
    * ``drain``: for the last reports of agents whose processes have ended.
    * ``reading``: for the output of processes without an agent to be read; it is lost with their pods.
    """

    registration: timedelta = timedelta(seconds=60)
    drain: timedelta = timedelta(seconds=10)
    reading: timedelta = timedelta(minutes=2)


# --- Facts to events -------------------------------------------------------------------------------------------------
def events_from(job: JobView, facts: Facts, now: datetime, policy: Policy) -> Iterator[Event]:
    """Yield the events that follow from the facts, the most urgent first; none if there is nothing to do but wait."""
    if job.state in TERMINAL:
        return
    merged = merge(facts.replicas, facts.view)
    if job.state is JobState.STOPPING:
        if _drained(job, merged, facts.view, now, policy):
            yield Drained(job.attempt)
        return
    if facts.cancelled_by:
        yield CancelRequested(job.attempt, messages.CANCELLED_BY(name=facts.cancelled_by))
    if facts.recalled:
        yield Preempted(job.attempt, facts.recalled)
    paused = job.pause.total(now) if job.pause is not None else timedelta(0)
    if job.admitted is not None and job.state is not JobState.QUEUED and now >= job.admitted + job.timeout + paused:
        yield AttemptEnded(job.attempt, messages.TIMEOUT_REACHED(length=in_words(job.timeout)), Reason.DEADLINE)
    if job.state is JobState.ADMITTED:
        yield BuildStarted(job.attempt)
    if job.state in _STARTED:
        yield from _events_of_training(job, facts, merged, now, policy)


def _events_of_training(
    job: JobView, facts: Facts, replicas: Sequence[ReplicaFact], now: datetime, policy: Policy
) -> Iterator[Event]:
    if job.state is JobState.REGISTERING and _all_registered(replicas):
        yield AllRegistered(job.attempt, _strength(replicas, ()))
    if any(replica.unread for replica in replicas):
        return  # the end of an attempt deletes the pods, and their output with them
    decided = attempt_end.decide(job, replicas)
    standing = holds.message(_held(replicas, now)) or (job.pause.message() if job.pause is not None else "")
    if decided:
        if not attempt_end.awaits_cause(job, replicas, now):
            yield decided
    elif standing:
        # Nothing else is to be expected of the job; a replica that failed before it registered is waited for, too.
        if standing != job.why:
            yield StrengthChanged(job.attempt, standing)
    elif job.state is JobState.REGISTERING and now >= job.changed + policy.registration:
        yield _registration_overdue(job, replicas, policy)
    elif job.state is JobState.REGISTERING and (message := _awaited(replicas)) != (job.why or message):
        if not _all_registered(replicas):
            yield StrengthChanged(job.attempt, message)
    elif job.state is JobState.RUNNING and facts.stalled and facts.fails_when_stalled:
        yield AttemptEnded(job.attempt, facts.stalled, Reason.STALLED)
    elif job.state is JobState.RUNNING:
        message = facts.stalled or _strength(replicas, recovering(job, replicas))
        if message != job.why:
            yield StrengthChanged(job.attempt, message)


def _held(replicas: Sequence[ReplicaFact], now: datetime) -> list[tuple[str, Held]]:
    """Return the replicas whose program is held."""
    return [(one.name, one.held) for one in replicas if one.held is not None and not one.ended and one.held.lasts(now)]


def merge(replicas: Sequence[ReplicaFact], view: AttemptView | None) -> tuple[ReplicaFact, ...]:
    """Return the reports, completed from the backend's view. A reported end takes precedence: it has more detail."""
    if view is None:
        return tuple(replicas)
    seen = {replica.name: replica for replica in view.replicas}
    return tuple(_with_view(fact, seen.get(fact.name), view.gone) for fact in replicas)


def _with_view(fact: ReplicaFact, seen: ReplicaView | None, gone: bool) -> ReplicaFact:
    if seen is not None and not seen.agent and seen.phase is Phase.EXITED and not fact.flushed:
        fact = replace(fact, unread=True)
    if fact.ended:
        return fact
    if gone:
        return replace(fact, state=ReplicaState.LOST, why=messages.UNKNOWN_TO_BACKEND())
    if seen is None and fact.dismissed:
        return replace(fact, state=ReplicaState.LOST, why=messages.DISMISSED_BEFORE_START())
    if seen is None or seen.start_number < fact.start_number:
        return fact
    if seen.phase is Phase.RUNNING and not seen.agent:
        return replace(fact, state=ReplicaState.REGISTERED, registered=True, why="")
    if seen.phase not in _ENDINGS:
        return fact if fact.registered else replace(fact, why=seen.why)
    return replace(
        fact,
        state=_ENDINGS[seen.phase],
        code=seen.code,
        signal=seen.signal,
        out_of_memory=seen.out_of_memory,
        why=seen.why,
    )


_ENDINGS: Mapping[Phase, ReplicaState] = {Phase.EXITED: ReplicaState.EXITED, Phase.LOST: ReplicaState.LOST}


# By whether a trainer is lost, and whether the job has one trainer alone.
_TRAINING_WITH_SOME: Mapping[tuple[bool, bool], Template] = {
    (True, False): messages.TRAINING_REDUCED,
    (True, True): messages.TRAINING_REDUCED_ONE,
    (False, False): messages.TRAINING_PARTIAL,
    (False, True): messages.TRAINING_PARTIAL_ONE,
}


def _strength(replicas: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> str:
    trainers = present_trainers(replicas)
    lost = [replica for replica in replicas if replica in coming or (replica in trainers and replica.ended_externally)]
    joining = [replica.name for replica in replicas if replica.joining and not replica.dismissed]
    if not lost and not joining:
        return messages.TRAINING(trainers=trainers_in_words(len(trainers)))
    reasons = [messages.RESTARTING(ending=ending(one)) if one in coming else ending(one) for one in lost]
    if len(joining) == 1:
        reasons.append(messages.JOINING_ONE(replicas=joining[0]))
    elif joining:
        reasons.append(messages.JOINING(replicas=enumerated(joining)))
    missing = sum(replica in lost or replica.joining for replica in trainers)
    message = _TRAINING_WITH_SOME[bool(lost), len(trainers) == 1]
    present = message(left=len(trainers) - missing, all=len(trainers), endings=clauses(reasons))
    return paragraph(present, *_waiting_reasons(replicas))


def _all_registered(replicas: Sequence[ReplicaFact]) -> bool:
    """Return whether every replica has registered or is a trainer that ended, and at least one trainer registered."""
    trainers = present_trainers(replicas)
    awaited = [replica for replica in replicas if not (replica.role == contract.TRAINER and replica.ended)]
    return all(replica.registered for replica in awaited) and any(replica.registered for replica in trainers)


def _awaited(replicas: Sequence[ReplicaFact]) -> str:
    """Return the message of a registering job, with the reasons why its replicas wait."""
    return paragraph(messages.WAITING_FOR_REGISTRATION(), *_waiting_reasons(replicas))


def _waiting_reasons(replicas: Sequence[ReplicaFact]) -> Iterator[str]:
    """Yield why replicas have not started, as the backend reports it: one text for all with the same reason."""
    joining = [replica for replica in replicas if replica.joining and not replica.dismissed and replica.why]
    for why in dict.fromkeys(replica.why for replica in joining):
        names = enumerated([replica.name for replica in joining if replica.why == why])
        yield with_full_stop(prefixed(names, without_full_stop(why)))


def _registration_overdue(job: JobView, replicas: Sequence[ReplicaFact], policy: Policy) -> AttemptEnded:
    missing = [replica.name for replica in replicas if not replica.registered and not replica.ended]
    why = messages.NOT_REGISTERED_IN_TIME(time=in_words(policy.registration), replicas=", ".join(missing))
    causes = list(_waiting_reasons(replicas))
    if not causes and job.together:
        causes = [messages.TRAINERS_WAIT_FOR_PSERVERS()]
    elif not causes and any(name.startswith(contract.TRAINER) for name in missing):
        causes = [messages.CALL_INIT_EARLY()]
    return AttemptEnded(job.attempt, paragraph(why, *causes), Reason.REGISTRATION_TIMEOUT)


def _drained(
    job: JobView, replicas: Sequence[ReplicaFact], view: AttemptView | None, now: datetime, policy: Policy
) -> bool:
    if view is None:
        return False
    if view.gone:
        return True
    alive = {replica.name for replica in view.replicas if replica.phase not in _ENDINGS}
    if alive:
        return False
    silent = [replica for replica in replicas if replica.state is ReplicaState.EXITED and not replica.flushed]
    patience = policy.reading if any(replica.unread for replica in silent) else policy.drain
    return not silent or now >= job.changed + patience
