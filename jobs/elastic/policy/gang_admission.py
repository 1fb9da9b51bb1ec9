"""Gang admission of newcomers: all replicas of a job begin at once, or none. Pure.

Gang means as in gang scheduling (Ousterhout 1982). The queue is first come, first served with backfilling, as in EASY
(Lifka 1995): the first job that does not fit has a reservation, and later ones pass it as long as they keep that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from jobs.elastic.policy import explanations, fair_share
from jobs.elastic.policy.allocation import Allocation
from jobs.elastic.policy.model import NOTHING, Amounts, Job, total
from jobs.elastic.policy.preemption import ANY, GENTLE, Claim, Level, Preemptor
from jobs.elastic.policy.working_state import JobState, NodeState

# How often more capacity is freed for a gang that would not fit when placed again.
_ROUNDS = 3


@dataclass
class Gang:
    """The nodes of the replicas of a newcomer. ``stopping``: the number of trainers of others that stop for it."""

    state: JobState
    masters: list[NodeState] = field(default_factory=list)
    servers: list[NodeState] = field(default_factory=list)
    trainers: list[NodeState] = field(default_factory=list)
    stopping: int = 0
    begins: bool = False

    def replicas(self) -> Iterator[tuple[NodeState, Amounts]]:
        job = self.state.job
        parts = ((self.masters, job.core.master), (self.servers, job.core.server), (self.trainers, job.trainer))
        for placed, need in parts:
            for node in placed:
                yield node, need


@dataclass
class _Reservation:
    """The claim of the first newcomer that does not fit on capacity that becomes free.

    ``spare``: the amounts that jobs behind it in the queue may still take, counting those that run at their least. So
    it begins at the latest when all jobs before it have ended.
    """

    key: str
    spare: Amounts
    has_patience: bool

    def lets_pass(self, need: Amounts) -> bool:
        return self.has_patience and _covers(self.spare, need)


class GangAdmission:
    """Admission of the waiting jobs of one decision.

    ``gangs``: the jobs whose replicas all have a place. ``reasons``: the message of those that have none. Invariant: a
    job that is in neither was not waiting, and none is in both.
    """

    def __init__(self, allocation: Allocation, preemptor: Preemptor) -> None:
        self._allocation, self._preemptor = allocation, preemptor
        self.gangs: dict[JobState, Gang] = {}
        self.reasons: dict[JobState, str] = {}
        # By the namespace whose limit they wait for; None: they wait for nodes.
        self._reservations: dict[str | None, _Reservation] = {}

    def admit(self) -> None:
        """Place each newcomer in the order of the queue, or record why it waits."""
        depth = self._allocation.rules.depth
        failed: set[tuple[object, ...]] = set()
        for state in self._queue():
            job = state.job
            servers = fair_share.servers(job, state.fair)
            kind = (job.core, job.least, state.shape, job.priority, servers)
            need = job.core.master.plus(job.core.server.times(servers)).plus(job.trainer.times(job.least))
            reserved = [self._reservations[key] for key in (None, job.namespace) if key in self._reservations]
            before = next((each for each in reserved if not each.lets_pass(need)), None)
            if before is not None:
                self.reasons[state] = explanations.behind(before.key)
            elif kind in failed or not self._place(state, search=len(failed) < depth):
                failed.add(kind)
                self.reasons[state] = explanations.no_capacity(job.least)
                self._reserve(job, need)
            else:
                for each in reserved:
                    each.spare = each.spare.minus(need)

    def _queue(self) -> list[JobState]:
        waiting = [state for state in self._allocation.jobs if state.job.started is None]
        return sorted(waiting, key=lambda state: self._position(state.job))

    def _position(self, job: Job) -> tuple[float, str]:
        """Return the sort key of a newcomer: its age, with its priority as a head start."""
        return job.since - job.priority * self._allocation.rules.head_start, job.key

    def _reserve(self, job: Job, need: Amounts) -> None:
        """Record a newcomer as the first that waits for nodes, or for the limit of its namespace.

        It waits for the limit if it would not fit under it even with all running jobs there at their least.
        """
        allocation = self._allocation
        limit = allocation.limits.get(job.namespace)
        running = [state.job for state in allocation.jobs if state.job.started is not None]
        own = [other for other in running if other.namespace == job.namespace]
        key, left = None, allocation.capacity.minus(need)
        if limit is not None and not _covers(limit.minus(total(map(_least, own))), need):
            key, left, running = job.namespace, limit.minus(need), own
        later = total(_least(other) for other in running if self._position(other) > self._position(job))
        has_patience = allocation.now - job.since <= allocation.rules.patience
        self._reservations.setdefault(key, _Reservation(job.key, left.minus(later), has_patience))

    def _place(self, state: JobState, *, search: bool) -> bool:
        """Place a whole gang and return True, or change nothing and return False.

        ``search``: whether other jobs may give up trainers for it, or stop.
        """
        allocation, transaction, gang = self._allocation, self._allocation.transaction, Gang(state)
        stopped, savepoint = allocation.stopping, transaction.savepoint()
        fits = self._gather(gang, GENTLE if search else ())
        if not fits and search:
            for other in self._preemptor.stoppable_for(state.job):
                allocation.preempt(other, f"`{state.job.key}`")
                fits = self._gather(gang, ANY)
                if fits:
                    break
        if not fits or (allocation.stopping > stopped and not self._fits_again(gang)):
            transaction.rollback(savepoint)
            return False
        transaction.commit()
        gang.stopping = allocation.stopping - stopped
        gang.begins = state.begins = allocation.free_capacity.begin(gang.replicas())
        self.gangs[state] = gang
        state.target += len(gang.trainers)
        return True

    def _fits_again(self, gang: Gang) -> bool:
        """Whether a gang that is placed again will fit once its victims are gone, if need be with further victims.

        Else trainers would stop for it in vain, again and again.
        """
        allocation, namespace = self._allocation, gang.state.job.namespace
        for _ in range(_ROUNDS):
            for node, need in gang.replicas():
                allocation.give_back(node, need, namespace)
                allocation.transaction.record(partial(allocation.take, node, need, namespace))
            for placed in (gang.masters, gang.servers, gang.trainers):
                placed.clear()
            if self._gather(gang, ()):
                return True
            if not self._gather(gang, GENTLE):
                return False
        return False

    def _gather(self, gang: Gang, levels: Sequence[Level]) -> bool:
        """Place the replicas of the gang that have no place yet. Return whether all have one now."""
        job = gang.state.job
        claim = Claim(f"`{job.key}`", namespace=job.namespace)
        parts = (
            (gang.servers, job.core.server, fair_share.servers(job, gang.state.fair)),
            (gang.trainers, job.trainer, job.least),
            (gang.masters, job.core.master, int(job.core.master != NOTHING)),
        )
        for placed, need, count in parts:
            placed.extend(self._preemptor.claim((need, job.tolerates), count - len(placed), levels, claim))
            if len(placed) < count:
                return False
        return True


def _covers(there: Amounts, need: Amounts) -> bool:
    return all(left >= amount or not amount for left, amount in zip(there, need, strict=True))


def _least(job: Job) -> Amounts:
    """Return the amounts that a running job holds at its least."""
    return fair_share.fixed(job).plus(job.trainer.times(job.least))
