"""From what is known of an attempt to the events of its job. Pure.

Two witnesses tell of a replica: its agent reports through ingest, and the backend is asked what it sees. ``merge`` puts
the two together, ``verdict`` says whether the attempt is over and why, ``events_from`` turns it all into events.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.messages import count, in_words, listed, signal_name
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
from runtime import contract

_STARTED = (JobState.REGISTERING, JobState.RUNNING)


# How often a replica that is lost in mid-run is started again in its place, before its loss counts (see ``verdict``).
# The master finds its queue in the coordination store, a trainer the parameters at the servers, and a parameter server
# what it lost at the trainers.
RESTARTS: Mapping[str, int] = {contract.MASTER: 3, contract.PSERVER: 3, contract.TRAINER: 3}


# From the end of a master's process until its agent has told of it.
MASTER_REPORT_DELAY = timedelta(seconds=2)
# How long a process may take to end after its connections broke: Python and its libraries shut down.
CAUSE_REPORT_DELAY = timedelta(seconds=5)
# What gloo, NCCL and sockets say of a peer that is gone.
_LOST_PEER = re.compile(
    r"gloo.*pair\.cc|[Cc]onnection (?:closed|reset|refused)|remote (?:worker|process)|ncclRemoteError|DistNetworkError"
    r"|ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError"
)


@dataclass(frozen=True)
class ReplicaFact:
    """One replica in its present life. ``registered``: it has registered at some time, ``since`` when; ``flushed``: its
    agent told of the end itself, which it does after the last of its output; ``unread``: it has no agent, has ended,
    and what it printed is not all read; ``dismissed``: it was asked to leave."""

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
    def left_without_blame(self) -> bool:
        """Killed from outside, gone, or asked to be started again: not the script's own failure."""
        if self.state is ReplicaState.LOST:
            return True
        return self.state is ReplicaState.EXITED and (self.signal is not None or self.code == contract.EXIT_RESTART)

    @property
    def lost_peer(self) -> bool:
        """Whether its error is that the connection to another process broke, which ended before."""
        return self.state is ReplicaState.EXITED and _LOST_PEER.search(self.why) is not None

    @property
    def recoverable(self) -> bool:
        """Ended by something that another life may be spared, and not too often yet; a rehearsed end costs nothing.

        A process that used too much memory or CPU time would do it again.
        """
        spent = self.out_of_memory or self.signal == signal.SIGXCPU
        allowed = RESTARTS[self.role]
        left = bool(allowed) if self.rehearsed else self.restarts < allowed
        return self.left_without_blame and left and not spent

    @property
    def failed(self) -> bool:
        """The script itself ended with an error."""
        return self.ended and not self.succeeded and not self.left_without_blame


@dataclass(frozen=True)
class Facts:
    """What is known of a job beside its row. ``recalled``: why the quota wants back what the attempt borrowed. ``view``
    is None where the backend was not asked or did not answer."""

    cancelled_by: str = ""
    recalled: str = ""
    replicas: tuple[ReplicaFact, ...] = ()
    view: AttemptView | None = None


@dataclass(frozen=True)
class Policy:
    """``registration``: how long replicas may take to register. ``drain``: how long the end of an attempt waits for
    the last words of agents whose processes have ended; ``reading``: and until all is read that processes without an
    agent have printed, which goes with them."""

    registration: timedelta = timedelta(seconds=60)
    drain: timedelta = timedelta(seconds=10)
    reading: timedelta = timedelta(minutes=2)


# --- Facts to events -------------------------------------------------------------------------------------------------
def events_from(job: JobView, facts: Facts, now: datetime, policy: Policy) -> Iterator[Event]:
    """The events that the facts ask for, the most urgent first. None in a state that only waits."""
    if job.state in TERMINAL:
        return
    merged = merge(facts.replicas, facts.view)
    if job.state is JobState.STOPPING:
        if _drained(job, merged, facts.view, now, policy):
            yield Drained(job.attempt)
        return
    if facts.cancelled_by:
        yield CancelRequested(job.attempt, f"Cancelled by {facts.cancelled_by}.")
    if facts.recalled:
        yield Preempted(job.attempt, facts.recalled)
    if job.admitted is not None and job.state is not JobState.QUEUED and now >= job.admitted + job.timeout:
        yield AttemptEnded(job.attempt, f"The job's timeout of {in_words(job.timeout)} has passed.", Reason.DEADLINE)
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
        return  # the end of an attempt takes the pods away, and with them what they printed
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
    """The reports completed by what the backend sees. A report of an end stands; it knows more."""
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
        return replace(fact, state=ReplicaState.LOST, why="the backend knows nothing of it any more")
    if seen is None and fact.dismissed:
        return replace(fact, state=ReplicaState.LOST, why="it was dismissed before it was started")
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
    """Whether the attempt is over, and why. None while it goes on.

    Trainers that were dismissed count for nothing. Who is killed, lost, or leaves with EXIT_RESTART in mid-run is
    started again in its place (``recovering``) and does not count as lost meanwhile. A trainer for whom that is over is
    missed only when fewer than ``min_trainers`` are left; the last master and parameter servers are missed at once.
    A parameter server whose values nobody has any more ends the attempt; the next one goes on from what was kept.
    A trainer that fails by itself ends the attempt, unless the platform's own replicas failed it.
    A master that exits with 0 has seen all passes done and every trainer leave. Its word may come before theirs, so
    that alone decides nothing; but who has not registered by then came too late to train (``_too_late``).
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
        return AttemptEnded(job.attempt, f"{replica.name} could not be given back its values.", Reason.VALUES_LOST)
    for replica in lost:
        why = f"{ending(replica)}, before training was complete."
        return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if replica.out_of_memory else Reason.REPLICA_LOST)
    for replica in failed:
        why = ending(replica) + "."
        return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if replica.out_of_memory else Reason.USER_ERROR)
    return _too_few(job, trainers, coming)


def _verdict_together(job: JobView, replicas: Sequence[ReplicaFact]) -> AttemptEnded | None:
    """The same of processes that meet once: whoever ends before its time takes the others along, which cannot go on.

    The first to end so is the cause; the others' errors follow from it. One that reports a lost peer is not the cause
    if another failed too: a script that raises an error closes its connections before its process ends. Servers that
    run until they are stopped have done their duty when all trainers have.
    """
    trainers = _trainers(replicas)
    if replicas and all(replica.state is ReplicaState.LOST for replica in replicas):
        return AttemptEnded(job.attempt, _all_lost(replicas), Reason.LOST)
    if trainers and all(replica.succeeded for replica in trainers):
        return AttemptEnded(job.attempt, f"Trained with {count(len(trainers), 'trainer')}.", Reason.COMPLETED)
    first = _first_failed(job, replicas)
    if first is None:
        return None
    if first.left_without_blame and not first.out_of_memory:
        why = f"{ending(first)}, and the others cannot go on without it."
        return AttemptEnded(job.attempt, why, Reason.KILLED)
    return AttemptEnded(
        job.attempt, f"{ending(first)}.", Reason.OUT_OF_MEMORY if first.out_of_memory else Reason.USER_ERROR
    )


def _first_failed(job: JobView, replicas: Sequence[ReplicaFact]) -> ReplicaFact | None:
    ended = [replica for replica in replicas if replica.ended and not replica.succeeded]
    return min(ended, key=lambda one: (one.lost_peer, one.finished is None, one.finished or job.changed), default=None)


def _awaits_cause(job: JobView, replicas: Sequence[ReplicaFact], now: datetime) -> bool:
    """Whether all that failed lost a peer, and the one that they lost may still be about to end."""
    first = _first_failed(job, replicas) if job.together else None
    if first is None or not first.lost_peer or first.finished is None:
        return False
    return now < first.finished + CAUSE_REPORT_DELAY and not all(replica.ended for replica in replicas)


def _too_late(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Trainers that came when the master had seen the end, and wait for one that will not come.

    Its word of its end comes a moment after it, so who registered within that moment counts too: if others had time to
    train, for a job may be over in a moment.
    """
    ends = [replica.finished for replica in replicas if replica.role == contract.MASTER and replica.succeeded]
    if not ends:
        return []
    trainers, end = _trainers(replicas), min((at for at in ends if at), default=None)
    recent = [one for one in trainers if end and one.since and one.since > end - MASTER_REPORT_DELAY]
    earlier = any(trainer.succeeded and trainer not in recent for trainer in trainers)
    return [one for one in trainers if one.joining or (earlier and one in recent and not one.ended)]


def recovering(job: JobView, replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Those that ended in mid-run and are to be started again; none of a job whose processes meet once.

    No trainer is once one of them has come to its end: there is nothing left for it to do.
    """
    if job.together or job.state is not JobState.RUNNING:
        return []
    ending = any(trainer.succeeded or trainer.failed for trainer in _trainers(replicas))
    candidates = [replica for replica in replicas if replica.recoverable and not replica.dismissed]
    return [replica for replica in candidates if not (ending and replica.role == contract.TRAINER)]


def _trainers(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Those that the job should have."""
    return [replica for replica in replicas if replica.role == contract.TRAINER and not replica.dismissed]


def _is_missed(replica: ReplicaFact) -> bool:
    """Whether one of the platform's own replicas has ended before its time."""
    return replica.ended and not (replica.role == contract.MASTER and replica.succeeded)


def _has_standby(lost: ReplicaFact, replicas: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> bool:
    """Whether it is a master for which another stands by."""
    others = (one for one in replicas if one.role == contract.MASTER and one.name != lost.name)
    standby = any(not one.ended or one in coming for one in others)
    return lost.role == contract.MASTER and lost.left_without_blame and standby


def _too_few(job: JobView, trainers: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> AttemptEnded | None:
    lost = [replica for replica in trainers if replica.left_without_blame and replica not in coming]
    left = len(trainers) - len(lost)
    if not lost or left >= max(1, job.min_trainers):
        return None
    endings = "; ".join(ending(replica) for replica in lost)
    why = f"{left} of {len(trainers)} trainers are left and the job needs {max(1, job.min_trainers)}: {endings}."
    memory = any(replica.out_of_memory for replica in lost)
    return AttemptEnded(job.attempt, why, Reason.OUT_OF_MEMORY if memory else Reason.KILLED)


def _completion(trainers: Sequence[ReplicaFact]) -> str:
    trainers = [replica for replica in trainers if replica.ended]
    lost = [replica for replica in trainers if not replica.succeeded]
    if not any(replica.registered for replica in trainers if replica.succeeded):
        return "The script ended without an error, but it never called dist.init(): the platform trained nothing."
    if not lost:
        return f"Trained with {count(len(trainers), 'trainer')}."
    endings = "; ".join(ending(replica) for replica in lost)
    return f"Trained with {len(trainers) - len(lost)} of {len(trainers)} trainers; {endings}."


def _strength(replicas: Sequence[ReplicaFact], coming: Sequence[ReplicaFact]) -> str:
    trainers = _trainers(replicas)
    lost = [
        replica for replica in replicas if replica in coming or (replica in trainers and replica.left_without_blame)
    ]
    joining = [replica.name for replica in replicas if replica.joining and not replica.dismissed]
    if not lost and not joining:
        return f"Training with {count(len(trainers), 'trainer')}."
    parts = [ending(replica) + (" and is started again" if replica in coming else "") for replica in lost]
    if joining:
        parts.append(f"{listed(joining)} {'is' if len(joining) == 1 else 'are'} joining")
    missing = sum(replica in lost or replica.joining for replica in trainers)
    there = f"{len(trainers) - missing} of {count(len(trainers), 'trainer')}"
    return " ".join(
        (f"Training {'goes on ' if lost else ''}with {there}; {'; '.join(parts)}.", *_waiting_reasons(replicas))
    )


def _all_lost(replicas: Sequence[ReplicaFact]) -> str:
    return f"All {len(replicas)} processes of the attempt are gone and left no word of how they ended."


def _all_registered(replicas: Sequence[ReplicaFact]) -> bool:
    """Every replica has registered, or is a trainer that has ended; one trainer at least has registered."""
    trainers = _trainers(replicas)
    awaited = [replica for replica in replicas if not (replica.role == contract.TRAINER and replica.ended)]
    return all(replica.registered for replica in awaited) and any(replica.registered for replica in trainers)


def _awaited(replicas: Sequence[ReplicaFact]) -> str:
    """What the job waits for before it trains, with what keeps it from beginning."""
    return " ".join(("Waiting for the replicas to register.", *_waiting_reasons(replicas)))


def _waiting_reasons(replicas: Sequence[ReplicaFact]) -> Iterator[str]:
    """What keeps replicas from beginning, as far as the backend knows, once for all of which it is the same."""
    joining = [replica for replica in replicas if replica.joining and not replica.dismissed and replica.why]
    for why in dict.fromkeys(replica.why for replica in joining):
        yield f"{listed([replica.name for replica in joining if replica.why == why])}: {why.rstrip('.')}."


def _registration_overdue(job: JobView, replicas: Sequence[ReplicaFact], policy: Policy) -> AttemptEnded:
    missing = [replica.name for replica in replicas if not replica.registered and not replica.ended]
    why = f"After {in_words(policy.registration)} {', '.join(missing)} had not registered."
    hindrances = list(_waiting_reasons(replicas))
    if hindrances:
        why = " ".join((why, *hindrances))
    elif job.together:
        why += " Trainers begin when all parameter servers listen; the log of the servers says why they do not."
    elif any(name.startswith(contract.TRAINER) for name in missing):
        why += " The script has to call dist.init() before anything that takes long."
    return AttemptEnded(job.attempt, why, Reason.REGISTRATION_TIMEOUT)


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


# --- Words -----------------------------------------------------------------------------------------------------------
def ending(replica: ReplicaFact) -> str:
    """How a replica ended, as the start of a message. Where its agent told, in the agent's words."""
    report = replica.why.strip().rstrip(".")
    if replica.state is ReplicaState.LOST:
        return f"{replica.name} is gone" + (f": {report}" if report else "")
    return f"{replica.name} {report or _manner(replica)}"


def _manner(replica: ReplicaFact) -> str:
    if replica.out_of_memory:
        return "ran out of memory"
    if replica.signal is not None:
        return f"was ended by {signal_name(replica.signal)}"
    return f"exited with code {replica.code}"


# Kinds of events that tell of a replica's loss and of its next life.
LOSSES = ("rehearsal", "exited", "restarted")
