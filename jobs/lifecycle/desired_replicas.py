"""Who should be there in a running attempt: compares it with who is. Pure.

Who is lost begins another life in its place, after a while that grows with every loss
(``jobs.lifecycle.observations.recovering``). Of trainers a person may wish for more or fewer. The wish is a number
(``JobView.trainers``); wanted are the trainers of the indices below it. Asking again after the answer has been carried
out gives nothing to do, so that the reconciler may ask at any time, also after a restart.

Those that are there and not dismissed always are the first so many indices: dismissed are the highest, and an index
comes back only when all below it are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.lifecycle.observations import ReplicaFact, recovering
from jobs.lifecycle.state_machine import JobView
from runtime import contract

# How long after its end a replica is started again, by how often that was done before.
BACK_OFF = (timedelta(seconds=0.5), timedelta(seconds=2), timedelta(seconds=5))


@dataclass(frozen=True)
class Changes:
    """``hire`` are indices without a replica yet; the others are names of replicas."""

    start: tuple[int, ...] = ()
    dismiss: tuple[str, ...] = ()
    return_: tuple[str, ...] = ()  # dismissed earlier and ended since: they begin another life
    replace: tuple[str, ...] = ()  # lost: they begin another life

    def __bool__(self) -> bool:
        return bool(self.start or self.dismiss or self.return_ or self.replace)


def changes(job: JobView, replicas: Sequence[ReplicaFact], now: datetime) -> Changes:
    """What has to be done now so that the job has the replicas that it should have."""
    trainers = {replica.index: replica for replica in replicas if replica.role == contract.TRAINER}
    dismiss = tuple(
        trainer.name for trainer in trainers.values() if trainer.index >= job.trainers and _may_leave(trainer)
    )
    # Where one has come to its end, the others will soon: there is nothing left to join.
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
    """How many trainers are there and not dismissed."""
    return sum(replica.role == contract.TRAINER and not replica.dismissed for replica in replicas)


def _is_due(lost: ReplicaFact, now: datetime) -> bool:
    pause = BACK_OFF[min(lost.restarts, len(BACK_OFF) - 1)]
    return lost.finished is not None and now >= lost.finished + pause


def _may_leave(trainer: ReplicaFact) -> bool:
    """One that has ended by itself keeps its ending."""
    return not trainer.dismissed and (not trainer.ended or trainer.left_without_blame)


def _joining(desired: int, trainers: dict[int, ReplicaFact]) -> Iterator[int]:
    for index in range(desired):
        trainer = trainers.get(index)
        if trainer is not None and trainer.dismissed and not trainer.ended:
            return  # it is still on its way out, and those above it wait for it
        if trainer is None or trainer.dismissed:
            yield index
