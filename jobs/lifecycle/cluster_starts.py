"""Starts that the cluster makes without the portal: how many it may make, and which of them the portal adopts. Pure.

The portal grants starts of running replicas in advance (``limits``). The cluster uses them while the portal does not
decide, as without its database. Afterwards the backend reports a higher start than the replica's row has
(``adoptions``). A start counts against the restarts of its replica, as one of the portal does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.backends.base import AttemptView, ReplicaView
from jobs.lifecycle.replica_facts import RESTARTS, ReplicaFact, recovering
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import JobState, ReplicaState


@dataclass(frozen=True)
class Adoption:
    """A start that the cluster made.

    ``lost``: the start that it replaced. ``start_number`` and ``restarts``: the new values of the row. ``refused``: the
    replica may not run again; its new start number is above that of the cluster, so that the agent there must stop.
    """

    lost: ReplicaFact
    start_number: int
    restarts: int
    refused: bool = False


def adoptions(job: JobView, replicas: Sequence[ReplicaFact], view: AttemptView | None) -> list[Adoption]:
    """Return the adoptions that are due; none once the rows have the start numbers that the backend reports."""
    if job.state is not JobState.RUNNING or view is None:
        return []
    seen = {replica.name: replica for replica in view.replicas}
    ahead = ((fact, seen[fact.name].start_number) for fact in replicas if fact.name in seen and not fact.dismissed)
    return [_adoption(job, fact, number) for fact, number in ahead if number > fact.start_number]


def _adoption(job: JobView, fact: ReplicaFact, number: int) -> Adoption:
    # The row may not know yet that its start has ended.
    lost = fact if fact.ended else replace(fact, state=ReplicaState.LOST, why="")
    restarts = fact.restarts + number - fact.start_number - fact.rehearsed
    if job.together or not lost.recoverable or restarts > RESTARTS[fact.role]:
        spent = fact.restarts if fact.ended else RESTARTS[fact.role]
        return Adoption(lost, number + 1, spent, refused=True)
    return Adoption(lost, number, restarts)


def limits(job: JobView, replicas: Sequence[ReplicaFact], view: AttemptView, spare: int) -> Mapping[str, int]:
    """Return the highest start that the cluster may make of each replica, where the backend has another; 0: none.

    ``spare``: starts that are granted in advance, within the restarts that the replica has left.
    """
    return dict(_limits(job, replicas, view, spare))


def _limits(job: JobView, replicas: Sequence[ReplicaFact], view: AttemptView, spare: int) -> Iterator[tuple[str, int]]:
    seen = {replica.name: replica for replica in view.replicas}
    undecided = recovering(job, replicas)  # their next start brings a limit of its own
    for fact in replicas:
        present = seen.get(fact.name)
        if present is None or present.granted is None or fact in undecided or _is_ahead(present, fact):
            continue
        limit = 0 if job.together or fact.ended or fact.dismissed else _limit(fact, spare)
        if limit != present.granted:
            yield fact.name, limit


def _is_ahead(present: ReplicaView, fact: ReplicaFact) -> bool:
    return present.start_number > fact.start_number


def _limit(fact: ReplicaFact, spare: int) -> int:
    left = min(spare, RESTARTS[fact.role] - fact.restarts)
    return fact.start_number + left if left > 0 else 0
