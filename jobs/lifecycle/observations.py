"""Events of a job from the observations of its attempt. Pure.

A replica has two sources: the reports that its agent sends through ingest, and the view of the backend. ``merge``
combines them, ``verdict`` decides whether the attempt is over and why, and ``events_from`` derives the job's events.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.reasons import Reason
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
from jobs.lifecycle.states import ENDED, TERMINAL, JobState, ReplicaState
from jobs.lifecycle.wording import in_words, signal_name
from jobs.lifecycle.wording import trainers as trainers_in_words
from jobs.messages import jobs as messages
from runtime import contract
from runtime.messages import Template, paragraph
from runtime.messages.composition import clauses, enumerated, prefixed, with_full_stop, without_full_stop

_STARTED = (JobState.REGISTERING, JobState.RUNNING)


# How often a replica that is lost while the job runs is started again before its loss counts (see ``verdict``).
# After a restart the master reads its queue from the coordination store, a trainer gets the parameters from the
# servers, and a parameter server gets its values back from the trainers.
RESTARTS: Mapping[str, int] = {contract.MASTER: 3, contract.PSERVER: 3, contract.TRAINER: 3}


# Upper bound of the time between the end of a master's process and its agent's report of it.
MASTER_REPORT_DELAY = timedelta(seconds=2)
# Upper bound of the time that a process takes to end after its connections broke: Python and its libraries shut down.
CAUSE_REPORT_DELAY = timedelta(seconds=5)
# Errors of gloo, NCCL and sockets when a peer is gone.
_LOST_PEER = re.compile(
    r"gloo.*pair\.cc|[Cc]onnection (?:closed|reset|refused)|remote (?:worker|process)|ncclRemoteError|DistNetworkError"
    r"|ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError"
)


@dataclass(frozen=True)
class ReplicaFact:
    """State of one replica since its last start.

    * ``registered``: it has registered since then; ``since``: the time of that.
    * ``flushed``: its agent reported the end, which it does after the last of the output.
    * ``unread``: it has no agent, has ended, and part of its output is not read yet.
    * ``dismissed``: it was stopped because fewer trainers are desired.
    """

    name: str
    role: str
    state: ReplicaState
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    why: str = ""
    registered: bool = False
    since: datetime | None = None
    flushed: bool = False
    unread: bool = False
    start_number: int = 1
    dismissed: bool = False
    restarts: int = 0
    rehearsed: bool = False
    finished: datetime | None = None

    @property
    def index(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def joining(self) -> bool:
        return not self.registered and not self.ended

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        return self.state is ReplicaState.EXITED and self.code == contract.EXIT_OK

    @property
    def ended_externally(self) -> bool:
        """Whether it was killed by a signal, is gone, or exited with EXIT_RESTART: no failure of the script."""
        if self.state is ReplicaState.LOST:
            return True
        return self.state is ReplicaState.EXITED and (self.signal is not None or self.code == contract.EXIT_RESTART)

    @property
    def lost_peer(self) -> bool:
        """Whether its error is a broken connection to another process, which ended earlier."""
        return self.state is ReplicaState.EXITED and _LOST_PEER.search(self.why) is not None

    @property
    def recoverable(self) -> bool:
        """Whether it ended for a reason that a restart can cure and has restarts left.

        An end by fault injection uses no restart. A process that exceeded its memory or CPU time would do so again.
        """
        spent = self.out_of_memory or self.signal == signal.SIGXCPU
        allowed = RESTARTS[self.role]
        left = bool(allowed) if self.rehearsed else self.restarts < allowed
        return self.ended_externally and left and not spent

    @property
    def failed(self) -> bool:
        """Whether the script itself ended with an error."""
        return self.ended and not self.succeeded and not self.ended_externally


@dataclass(frozen=True)
class Facts:
    """Observations of a job beside its row.

    ``recalled``: why the quota reclaims the capacity that the attempt borrowed; empty: it does not. ``view`` is None if
    the backend was not queried or did not answer.
    """

    cancelled_by: str = ""
    recalled: str = ""
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
    if job.admitted is not None and job.state is not JobState.QUEUED and now >= job.admitted + job.timeout:
        yield AttemptEnded(job.attempt, messages.TIMEOUT_REACHED(length=in_words(job.timeout)), Reason.DEADLINE)
    if job.state is JobState.ADMITTED:
        yield BuildStarted(job.attempt)
    if job.state in _STARTED:
        yield from _events_of_training(job, merged, now, policy)


def _events_of_training(
    job: JobView, replicas: Sequence[ReplicaFact], now: datetime, policy: Policy
) -> Iterator[Event]:
    if job.state is JobState.REGISTERING and _all_registered(replicas):
        yield AllRegistered(job.attempt, _strength(replicas, ()))
    if any(replica.unread for replica in replicas):
        return  # the end of an attempt deletes the pods, and their output with them
    decided = verdict(job, replicas)
    if decided:
        if not _awaits_cause(job, replicas, now):
            yield decided
    elif job.state is JobState.REGISTERING and now >= job.changed + policy.registration:
        yield _registration_overdue(job, replicas, policy)
    elif job.state is JobState.REGISTERING and (message := _awaited(replicas)) != (job.why or message):
        if not _all_registered(replicas):
            yield StrengthChanged(job.attempt, message)
    elif job.state is JobState.RUNNING and (message := _strength(replicas, recovering(job, replicas))) != job.why:
        yield StrengthChanged(job.attempt, message)


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


def verdict(job: JobView, replicas: Sequence[ReplicaFact]) -> AttemptEnded | None:
    """Return the end of the attempt with its reason, or None while it continues.

    * Dismissed trainers are ignored.
    * A replica that is killed, is lost, or exits with EXIT_RESTART while the job runs is started again
      (``recovering``); until then it does not count as lost.
    * Without restarts left, the loss of a trainer ends the attempt only if fewer than ``min_trainers`` remain; that of
      the last master or of a parameter server ends it at once.
    * A parameter server whose values no process has any more ends the attempt; the next attempt resumes from the
      checkpoint.
    * A trainer that fails by itself ends the attempt. If a master or parameter server is lost too, that is the reason.
    * A master exits with 0 after all passes are done and every trainer has left. Its report can arrive before theirs,
      so it decides nothing by itself; but a trainer that has not registered by then came too late (``_too_late``).
    """
    replicas = [replica for replica in replicas if not replica.dismissed]
    if job.together:
        return _verdict_together(job, replicas)
    coming = recovering(job, replicas)
    trainers = _trainers(replicas)
    missed = [replica for replica in replicas if replica.role != contract.TRAINER and _is_missed(replica)]
    lost = [replica for replica in missed if replica not in coming and not _has_standby(replica, replicas, coming)]
    without_values = [replica for replica in missed if replica.code == contract.EXIT_RESUME]
    working = [
        replica for replica in trainers if replica in coming or not (replica.ended or replica in _too_late(replicas))
    ]
    failed = [replica for replica in trainers if replica.failed]
    if replicas and all(replica.state is ReplicaState.LOST for replica in replicas):
        return AttemptEnded(job.attempt, _all_lost(replicas), Reason.LOST)
    if not working and not failed and any(replica.succeeded for replica in trainers):
        return AttemptEnded(job.attempt, _completion(trainers), Reason.COMPLETED)
    for replica in without_values:
        return AttemptEnded(job.attempt, messages.VALUES_NOT_RESTORED(name=replica.name), Reason.VALUES_LOST)
    for replica in lost:
        why: str = messages.BEFORE_COMPLETION(ending=ending(replica))
        return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if replica.out_of_memory else Reason.REPLICA_LOST)
    for replica in failed:
        why = with_full_stop(ending(replica))
        return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if replica.out_of_memory else Reason.USER_ERROR)
    return _too_few(job, trainers, coming)


def _verdict_together(job: JobView, replicas: Sequence[ReplicaFact]) -> AttemptEnded | None:
    """``verdict`` for processes that find one another once, when they start: none can continue without the others.

    The first process to fail is the cause; the others' errors follow from it. A process that reports a lost peer is not
    the cause if another one failed too: a script that raises an error closes its connections before its process ends.
    Servers run until they are stopped; the attempt is complete when all trainers have succeeded.
    """
    trainers = _trainers(replicas)
    if replicas and all(replica.state is ReplicaState.LOST for replica in replicas):
        return AttemptEnded(job.attempt, _all_lost(replicas), Reason.LOST)
    if trainers and all(replica.succeeded for replica in trainers):
        return AttemptEnded(job.attempt, messages.TRAINED(trainers=trainers_in_words(len(trainers))), Reason.COMPLETED)
    first = _first_failed(job, replicas)
    if first is None:
        return None
    if first.ended_externally and not first.out_of_memory:
        why = messages.ENDED_OTHERS_CANNOT_CONTINUE(ending=ending(first))
        return AttemptEnded(job.attempt, why, Reason.KILLED)
    return AttemptEnded(
        job.attempt, with_full_stop(ending(first)), Reason.OUT_OF_MEMORY if first.out_of_memory else Reason.USER_ERROR
    )


def _first_failed(job: JobView, replicas: Sequence[ReplicaFact]) -> ReplicaFact | None:
    ended = [replica for replica in replicas if replica.ended and not replica.succeeded]
    return min(ended, key=lambda one: (one.lost_peer, one.finished is None, one.finished or job.changed), default=None)


def _awaits_cause(job: JobView, replicas: Sequence[ReplicaFact], now: datetime) -> bool:
    """Return whether all failed processes lost a peer, and the peer that caused it may not have ended yet."""
    first = _first_failed(job, replicas) if job.together else None
    if first is None or not first.lost_peer or first.finished is None:
        return False
    return now < first.finished + CAUSE_REPORT_DELAY and not all(replica.ended for replica in replicas)


def _too_late(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the trainers that joined after the master had ended; they would wait for it without end.

    The report of the master's end arrives up to ``MASTER_REPORT_DELAY`` after it, so trainers that registered within
    that time count too; but only if another trainer that registered earlier succeeded, since a job can be that short.
    """
    ends = [replica.finished for replica in replicas if replica.role == contract.MASTER and replica.succeeded]
    if not ends:
        return []
    trainers, end = _trainers(replicas), min((at for at in ends if at), default=None)
    recent = [one for one in trainers if end and one.since and one.since > end - MASTER_REPORT_DELAY]
    earlier = any(trainer.succeeded and trainer not in recent for trainer in trainers)
    return [one for one in trainers if one.joining or (earlier and one in recent and not one.ended)]


def recovering(job: JobView, replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the replicas that ended while the job runs and are to be started again.

    None if the job's processes find one another only once. No trainer once one of them has finished: there is nothing
    left for it to do.
    """
    if job.together or job.state is not JobState.RUNNING:
        return []
    ending = any(trainer.succeeded or trainer.failed for trainer in _trainers(replicas))
    candidates = [replica for replica in replicas if replica.recoverable and not replica.dismissed]
    return [replica for replica in candidates if not (ending and replica.role == contract.TRAINER)]


def _trainers(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the trainers that are not dismissed."""
    return [replica for replica in replicas if replica.role == contract.TRAINER and not replica.dismissed]


def _is_missed(replica: ReplicaFact) -> bool:
    """Return whether a master or parameter server has ended before the job; a master may exit with 0."""
    return replica.ended and not (replica.role == contract.MASTER and replica.succeeded)


def _has_standby(lost: ReplicaFact, replicas: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> bool:
    """Return whether the lost replica is a master and another master runs or is to be started again."""
    others = (one for one in replicas if one.role == contract.MASTER and one.name != lost.name)
    standby = any(not one.ended or one in coming for one in others)
    return lost.role == contract.MASTER and lost.ended_externally and standby


def _too_few(job: JobView, trainers: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> AttemptEnded | None:
    lost = [replica for replica in trainers if replica.ended_externally and replica not in coming]
    left = len(trainers) - len(lost)
    if not lost or left >= max(1, job.min_trainers):
        return None
    endings = clauses(ending(replica) for replica in lost)
    why = messages.TOO_FEW_TRAINERS_LEFT(left=left, all=len(trainers), needed=max(1, job.min_trainers), endings=endings)
    memory = any(replica.out_of_memory for replica in lost)
    return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if memory else Reason.KILLED)


def _completion(trainers: Sequence[ReplicaFact]) -> str:
    trainers = [replica for replica in trainers if replica.ended]
    lost = [replica for replica in trainers if not replica.succeeded]
    if not any(replica.registered for replica in trainers if replica.succeeded):
        return messages.INIT_NEVER_CALLED()
    if not lost:
        return messages.TRAINED(trainers=trainers_in_words(len(trainers)))
    endings = clauses(ending(replica) for replica in lost)
    return messages.TRAINED_REDUCED(left=len(trainers) - len(lost), all=len(trainers), endings=endings)


# By whether a trainer is lost, and whether the job has one trainer alone.
_TRAINING_WITH_SOME: Mapping[tuple[bool, bool], Template] = {
    (True, False): messages.TRAINING_REDUCED,
    (True, True): messages.TRAINING_REDUCED_ONE,
    (False, False): messages.TRAINING_PARTIAL,
    (False, True): messages.TRAINING_PARTIAL_ONE,
}


def _strength(replicas: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> str:
    trainers = _trainers(replicas)
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


def _all_lost(replicas: Sequence[ReplicaFact]) -> str:
    return messages.ALL_PROCESSES_LOST_SILENTLY(count=len(replicas))


def _all_registered(replicas: Sequence[ReplicaFact]) -> bool:
    """Return whether every replica has registered or is a trainer that ended, and at least one trainer registered."""
    trainers = _trainers(replicas)
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


# --- Texts -----------------------------------------------------------------------------------------------------------
def ending(replica: ReplicaFact) -> str:
    """Return how a replica ended, as the start of a message; the agent's own text if it sent one."""
    report = without_full_stop(replica.why)
    if replica.state is not ReplicaState.LOST:
        return messages.ENDING(replica=replica.name, ending=report or _exit_description(replica))
    if report:
        return messages.GONE_BECAUSE(replica=replica.name, cause=report)
    return messages.GONE(replica=replica.name)


def _exit_description(replica: ReplicaFact) -> str:
    if replica.out_of_memory:
        return messages.OUT_OF_MEMORY()
    if replica.signal is not None:
        return messages.ENDED_BY(signal=signal_name(replica.signal))
    return messages.EXITED(code=replica.code)


# Kinds of events of a replica's loss and of its restart.
LOSSES = ("rehearsal", "exited", "restarted")
