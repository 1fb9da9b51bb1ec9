"""Desired replicas of a running attempt against the observed ones. Pure.

A lost replica is started again under the same name, after a delay that grows with every loss
(``jobs.lifecycle.replica_facts.recovering``). The desired number of trainers (``JobView.trainers``) can change during
the run; the desired trainers are those with an index below it. Once the changes are applied, ``changes`` returns none,
so the reconciler can call it at any time, also after a restart of the portal.

Trainers that are not dismissed always have consecutive indices from 0: the highest indices are dismissed first, and a
dismissed index is started again only when all lower indices are present.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.lifecycle.replica_facts import ReplicaFact, recovering
from jobs.lifecycle.state_machine import JobView
from runtime import contract

# Delay between the end of a replica and its next start, by its number of earlier restarts.
BACK_OFF = (timedelta(seconds=0.5), timedelta(seconds=2), timedelta(seconds=5))


@dataclass(frozen=True)
class Changes:
    """Changes that a running attempt needs.

    ``start`` holds indices of trainers that have no replica yet; the other fields hold names of replicas.
    """

    start: tuple[int, ...] = ()
    dismiss: tuple[str, ...] = ()
    return_: tuple[str, ...] = ()  # dismissed earlier and ended since: to be started again
    replace: tuple[str, ...] = ()  # lost: to be started again

    def __bool__(self) -> bool:
        return bool(self.start or self.dismiss or self.return_ or self.replace)


def changes(job: JobView, replicas: Sequence[ReplicaFact], now: datetime) -> Changes:
    """Return the changes that are due now to bring the replicas to the desired state."""
    trainers = {replica.index: replica for replica in replicas if replica.role == contract.TRAINER}
    dismiss = tuple(
        trainer.name for trainer in trainers.values() if trainer.index >= job.trainers and _can_be_dismissed(trainer)
    )
    # Once one trainer has finished, the others will soon: there is nothing left to join.
    ending = any((trainer.succeeded or trainer.failed) and not trainer.dismissed for trainer in trainers.values())
    joining = () if ending else tuple(_joining(job.trainers, trainers))
    return Changes(
        start=tuple(index for index in joining if index not in trainers),
        dismiss=dismiss,
        return_=tuple(trainers[index].name for index in joining if index in trainers),
        replace=tuple(
            lost.name for lost in recovering(job, replicas) if lost.name not in dismiss and _is_due(lost, now)
        ),
    )


def trainer_count(replicas: Sequence[ReplicaFact]) -> int:
    """Return the number of trainers that are not dismissed."""
    return sum(replica.role == contract.TRAINER and not replica.dismissed for replica in replicas)


def _is_due(lost: ReplicaFact, now: datetime) -> bool:
    pause = BACK_OFF[min(lost.restarts, len(BACK_OFF) - 1)]
    return lost.finished is not None and now >= lost.finished + pause


def _can_be_dismissed(trainer: ReplicaFact) -> bool:
    """Return whether a trainer can be dismissed: one that ended by itself keeps its result."""
    return not trainer.dismissed and (not trainer.ended or trainer.ended_externally)


def _joining(desired: int, trainers: dict[int, ReplicaFact]) -> Iterator[int]:
    for index in range(desired):
        trainer = trainers.get(index)
        if trainer is not None and trainer.dismissed and not trainer.ended:
            return  # it is still stopping; trainers with higher indices wait for it
        if trainer is None or trainer.dismissed:
            yield index
