"""Decision whether an attempt is over, and why: named rules, of which the first that applies decides. Pure.

Dismissed trainers are ignored. A replica that is to be started again (``recovering``) does not count as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.replica_facts import ReplicaFact, ending, present_trainers, recovering
from jobs.lifecycle.state_machine import AttemptEnded, JobView
from jobs.lifecycle.states import ReplicaState
from jobs.lifecycle.wording import trainers as trainers_in_words
from jobs.messages import jobs as messages
from runtime import contract
from runtime.messages.composition import clauses, with_full_stop

# Upper bound of the time between the end of a master's process and its agent's report of it.
MASTER_REPORT_DELAY = timedelta(seconds=2)
# Upper bound of the time that a process takes to end after its connections broke: Python and its libraries shut down.
CAUSE_REPORT_DELAY = timedelta(seconds=5)


@dataclass(frozen=True)
class Situation:
    """Input of a rule: the job, its replicas that are not dismissed, and those of them that are to be started again."""

    job: JobView
    replicas: tuple[ReplicaFact, ...]
    trainers: tuple[ReplicaFact, ...]
    recovering: tuple[ReplicaFact, ...]

    @classmethod
    def of(cls, job: JobView, replicas: Sequence[ReplicaFact]) -> Situation:
        present = tuple(replica for replica in replicas if not replica.dismissed)
        return cls(job, present, tuple(present_trainers(present)), tuple(recovering(job, present)))

    def ended(self, why: str, reason: Reason, *, out_of_memory: bool = False) -> AttemptEnded:
        """Return the end of the attempt; ``out_of_memory`` takes precedence over the reason."""
        return AttemptEnded(self.job.attempt, why, Reason.OUT_OF_MEMORY if out_of_memory else reason)


Rule = Callable[[Situation], AttemptEnded | None]


def decide(job: JobView, replicas: Sequence[ReplicaFact]) -> AttemptEnded | None:
    """Return the end of the attempt with its reason, or None while it continues."""
    situation = Situation.of(job, replicas)
    for rule in RULES_TOGETHER if job.together else RULES:
        if ended := rule(situation):
            return ended
    return None


# --- Rules -----------------------------------------------------------------------------------------------------------
def all_lost(situation: Situation) -> AttemptEnded | None:
    """Every replica is lost."""
    replicas = situation.replicas
    if not replicas or not all(replica.state is ReplicaState.LOST for replica in replicas):
        return None
    why = messages.ALL_PROCESSES_LOST_SILENTLY(count=len(replicas))
    return situation.ended(why, Reason.LOST)


def training_completed(situation: Situation) -> AttemptEnded | None:
    """A trainer succeeded, none failed, and none works or is to be started again.

    A master exits with 0 after all passes are done and every trainer has left. Its report can arrive before theirs, so
    it decides nothing by itself; but a trainer that registers after that came too late (``_too_late``).
    """
    trainers = situation.trainers
    if not any(replica.succeeded for replica in trainers) or any(replica.failed for replica in trainers):
        return None
    if any(_working(situation)):
        return None
    return situation.ended(_completion(trainers), Reason.COMPLETED)


def values_lost(situation: Situation) -> AttemptEnded | None:
    """No process has the values of a parameter server any more; the next attempt resumes from the checkpoint."""
    for replica in _missed(situation):
        if replica.code == contract.EXIT_RESUME:
            return situation.ended(messages.VALUES_NOT_RESTORED(name=replica.name), Reason.VALUES_LOST)
    return None


def platform_replica_lost(situation: Situation) -> AttemptEnded | None:
    """The last master or a parameter server has ended without restarts left.

    It comes before ``script_failed``: the trainers' errors follow from it.
    """
    for replica in _missed(situation):
        if replica not in situation.recovering and not _has_standby(replica, situation):
            why = messages.BEFORE_COMPLETION(ending=ending(replica))
            return situation.ended(why, Reason.REPLICA_LOST, out_of_memory=replica.out_of_memory)
    return None


def script_failed(situation: Situation) -> AttemptEnded | None:
    """A trainer failed by itself."""
    for replica in situation.trainers:
        if replica.failed:
            why = with_full_stop(ending(replica))
            return situation.ended(why, Reason.USER_ERROR, out_of_memory=replica.out_of_memory)
    return None


def too_few_trainers(situation: Situation) -> AttemptEnded | None:
    """Trainers were lost without restarts left, and fewer than ``min_trainers`` remain."""
    trainers, least = situation.trainers, max(1, situation.job.min_trainers)
    lost = [replica for replica in trainers if replica.ended_externally and replica not in situation.recovering]
    left = len(trainers) - len(lost)
    if not lost or left >= least:
        return None
    endings = clauses(ending(replica) for replica in lost)
    why = messages.TOO_FEW_TRAINERS_LEFT(left=left, all=len(trainers), needed=least, endings=endings)
    return situation.ended(why, Reason.KILLED, out_of_memory=any(replica.out_of_memory for replica in lost))


RULES: tuple[Rule, ...] = (
    all_lost,
    training_completed,
    values_lost,
    platform_replica_lost,
    script_failed,
    too_few_trainers,
)


# --- Rules of processes that find one another once, when they start: none can continue without the others ------------
def all_trainers_succeeded(situation: Situation) -> AttemptEnded | None:
    """All trainers have succeeded. Servers run until they are stopped."""
    trainers = situation.trainers
    if not trainers or not all(replica.succeeded for replica in trainers):
        return None
    return situation.ended(messages.TRAINED(trainers=trainers_in_words(len(trainers))), Reason.COMPLETED)


def one_failed(situation: Situation) -> AttemptEnded | None:
    """A process failed. The first to fail is the cause; the others' errors follow from it."""
    first = _first_failed(situation.job, situation.replicas)
    if first is None:
        return None
    if first.ended_externally and not first.out_of_memory:
        return situation.ended(messages.ENDED_OTHERS_CANNOT_CONTINUE(ending=ending(first)), Reason.KILLED)
    return situation.ended(with_full_stop(ending(first)), Reason.USER_ERROR, out_of_memory=first.out_of_memory)


RULES_TOGETHER: tuple[Rule, ...] = (all_lost, all_trainers_succeeded, one_failed)


def awaits_cause(job: JobView, replicas: Sequence[ReplicaFact], now: datetime) -> bool:
    """Return whether all failed processes lost a peer, and the peer that caused it may not have ended yet."""
    first = _first_failed(job, replicas) if job.together else None
    if first is None or not first.lost_peer or first.finished is None:
        return False
    return now < first.finished + CAUSE_REPORT_DELAY and not all(replica.ended for replica in replicas)


def _first_failed(job: JobView, replicas: Sequence[ReplicaFact]) -> ReplicaFact | None:
    """Return the process that failed first, or None.

    A process that reports a lost peer comes after all that do not: a script that raises an error closes its connections
    before its process ends.
    """
    ended = [replica for replica in replicas if replica.ended and not replica.succeeded]
    return min(ended, key=lambda one: (one.lost_peer, one.finished is None, one.finished or job.changed), default=None)


# --- Replicas of a situation -----------------------------------------------------------------------------------------
def _missed(situation: Situation) -> Iterator[ReplicaFact]:
    """Yield the masters and parameter servers that have ended before the job; a master may exit with 0."""
    for replica in situation.replicas:
        finished = replica.role == contract.MASTER and replica.succeeded
        if replica.role != contract.TRAINER and replica.ended and not finished:
            yield replica


def _has_standby(lost: ReplicaFact, situation: Situation) -> bool:
    """Return whether the lost replica is a master and another master runs or is to be started again."""
    others = (one for one in situation.replicas if one.role == contract.MASTER and one.name != lost.name)
    standby = any(not one.ended or one in situation.recovering for one in others)
    return lost.role == contract.MASTER and lost.ended_externally and standby


def _working(situation: Situation) -> Iterator[ReplicaFact]:
    """Yield the trainers that are to be started again, or run and did not join too late."""
    late = _too_late(situation)
    for trainer in situation.trainers:
        if trainer in situation.recovering or not (trainer.ended or trainer in late):
            yield trainer


def _too_late(situation: Situation) -> list[ReplicaFact]:
    """Return the trainers that joined after the master had ended; they would wait for it without end.

    The report of the master's end arrives up to ``MASTER_REPORT_DELAY`` after it, so trainers that registered within
    that time count too; but only if another trainer that registered earlier succeeded, since a job can be that short.
    """
    ends = [replica.finished for replica in situation.replicas if replica.role == contract.MASTER and replica.succeeded]
    if not ends:
        return []
    trainers, end = situation.trainers, min((at for at in ends if at), default=None)
    recent = [one for one in trainers if end and one.since and one.since > end - MASTER_REPORT_DELAY]
    earlier = any(trainer.succeeded and trainer not in recent for trainer in trainers)
    return [one for one in trainers if one.joining or (earlier and one in recent and not one.ended)]


def _completion(trainers: Sequence[ReplicaFact]) -> str:
    trainers = [replica for replica in trainers if replica.ended]
    lost = [replica for replica in trainers if not replica.succeeded]
    if not any(replica.registered for replica in trainers if replica.succeeded):
        return messages.INIT_NEVER_CALLED()
    if not lost:
        return messages.TRAINED(trainers=trainers_in_words(len(trainers)))
    endings = clauses(ending(replica) for replica in lost)
    return messages.TRAINED_REDUCED(left=len(trainers) - len(lost), all=len(trainers), endings=endings)
