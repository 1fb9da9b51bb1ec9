"""Gang admission of newcomers: all replicas of a job begin at once, or none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from jobs.elastic.policy import explanations, fair_share
from jobs.elastic.policy.allocation import Standing
from jobs.elastic.policy.model import NOTHING, Amounts, Job, total
from jobs.elastic.policy.preemption import ANY, GENTLE, Claim, Level, Preemptor

# How often more capacity is freed for a gang that would not fit when placed again.
_ROUNDS = 3


@dataclass
class Gang:
    """The nodes of the replicas of a newcomer. ``stopping``: the number of trainers of others that stop for it."""

    job: int
    masters: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    trainers: list[int] = field(default_factory=list)
    stopping: int = 0
    begins: bool = False


@dataclass
class _First:
    """The first newcomer that does not fit.

    ``spare``: the amounts that jobs behind it in the queue may still take, counting those that run at their least. So
    it begins at the latest when all jobs before it have ended.
    """

    key: str
    spare: Amounts
    has_patience: bool

    def lets_pass(self, need: Amounts) -> bool:
        return self.has_patience and _covers(self.spare, need)


class Newcomers:
    """Admission of the waiting jobs of one decision.

    ``gangs``: by job, the gangs that have a place. ``reasons``: by job, the message of those that have none.
    """

    def __init__(self, standing: Standing, preemptor: Preemptor) -> None:
        self.standing, self._preemptor = standing, preemptor
        self.gangs: dict[int, Gang] = {}
        self.reasons: dict[int, str] = {}
        # By the namespace whose limit they wait for; None: they wait for nodes.
        self._firsts: dict[str | None, _First] = {}

    def launch(self) -> None:
        standing, depth = self.standing, self.standing.rules.depth
        failed: set[tuple[object, ...]] = set()
        for index in self._in_order():
            job = standing.jobs[index]
            servers = fair_share.servers(job, standing.fair[index])
            shape_key = (job.core, job.least, standing.shape[index], job.priority, servers)
            need = job.core.master.plus(job.core.server.times(servers)).plus(job.trainer.times(job.least))
            firsts = [self._firsts[key] for key in (None, job.namespace) if key in self._firsts]
            before = next((first for first in firsts if not first.lets_pass(need)), None)
            if before is not None:
                self.reasons[index] = explanations.behind(before.key)
            elif shape_key in failed or not self._fits(index, search=len(failed) < depth):
                failed.add(shape_key)
                self.reasons[index] = explanations.no_capacity(job.least)
                self._note_first(job, need)
            else:
                for first in firsts:
                    first.spare = first.spare.minus(need)

    def _in_order(self) -> list[int]:
        jobs = self.standing.jobs
        waiting = [index for index, job in enumerate(jobs) if job.started is None]
        return sorted(waiting, key=lambda index: self._position(jobs[index]))

    def _position(self, job: Job) -> tuple[float, str]:
        """Return the sort key of a newcomer: its age, with its priority as a head start."""
        return job.since - job.priority * self.standing.rules.head_start, job.key

    def _note_first(self, job: Job, need: Amounts) -> None:
        """Record a newcomer as the first that waits for nodes, or for the limit of its namespace.

        It waits for the limit if it would not fit under it even with all running jobs there at their least.
        """
        standing = self.standing
        limit = standing.limits.get(job.namespace)
        running = [other for other in standing.jobs if other.started is not None]
        own = [other for other in running if other.namespace == job.namespace]
        key, left = None, standing.capacity.minus(need)
        if limit is not None and not _covers(limit.minus(total(map(_least, own))), need):
            key, left, running = job.namespace, limit.minus(need), own
        later = total(_least(other) for other in running if self._position(other) > self._position(job))
        has_patience = standing.now - job.since <= standing.rules.patience
        self._firsts.setdefault(key, _First(job.key, left.minus(later), has_patience))

    def _fits(self, index: int, *, search: bool) -> bool:
        """Place a whole gang and return True, or change nothing and return False."""
        standing, gang = self.standing, Gang(index)
        job, stopped = standing.jobs[index], standing.stopping
        standing.undo.clear()
        fits = self._gather(gang, GENTLE if search else ())
        if not fits and search:
            for other in self._preemptor.stoppable_for(job):
                standing.preempt(other, f"`{job.key}`")
                fits = self._gather(gang, ANY)
                if fits:
                    break
        if not fits or (standing.stopping > stopped and not self._fits_again(gang)):
            standing.rewind()
            return False
        gang.stopping = standing.stopping - stopped
        gang.begins = standing.free_capacity.begin(self._replicas(gang))
        self.gangs[index] = gang
        standing.height[index] += len(gang.trainers)
        standing.placed[index] = gang.begins
        return True

    def _fits_again(self, gang: Gang) -> bool:
        """Whether a gang that is placed again will fit once its victims are gone, if need be with further victims.

        Else trainers would stop for it in vain, again and again.
        """
        standing, namespace = self.standing, self.standing.jobs[gang.job].namespace
        for _ in range(_ROUNDS):
            for number, need in self._replicas(gang):
                standing.free(number, need, namespace)
                standing.undo.append(partial(standing.occupy, number, need, namespace))
            for placed in (gang.masters, gang.servers, gang.trainers):
                placed.clear()
            if self._gather(gang, ()):
                return True
            if not self._gather(gang, GENTLE):
                return False
        return False

    def _gather(self, gang: Gang, levels: Sequence[Level]) -> bool:
        """Place the replicas of the gang that have no place yet. Return whether all have one now."""
        job = self.standing.jobs[gang.job]
        claim = Claim(f"`{job.key}`", namespace=job.namespace)
        parts = (
            (gang.servers, job.core.server, fair_share.servers(job, self.standing.fair[gang.job])),
            (gang.trainers, job.trainer, job.least),
            (gang.masters, job.core.master, int(job.core.master != NOTHING)),
        )
        for placed, need, count in parts:
            placed.extend(self._preemptor.claim((need, job.tolerates), count - len(placed), levels, claim))
            if len(placed) < count:
                return False
        return True

    def _replicas(self, gang: Gang) -> Iterator[tuple[int, Amounts]]:
        job = self.standing.jobs[gang.job]
        parts = ((gang.masters, job.core.master), (gang.servers, job.core.server), (gang.trainers, job.trainer))
        for placed, need in parts:
            for number in placed:
                yield number, need


def _covers(there: Amounts, need: Amounts) -> bool:
    return all(left >= amount or not amount for left, amount in zip(there, need, strict=True))


def _least(job: Job) -> Amounts:
    """Return the amounts that a running job holds at its least."""
    return fair_share.fixed(job).plus(job.trainer.times(job.least))
