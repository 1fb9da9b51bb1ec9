"""Fault injection: kill a replica of one role at intervals, to show that the job survives it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from jobs.frameworks.definitions import meets_once
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.messages import jobs as messages
from jobs.spec import quantities
from runtime import contract

# Number of kills after which fault injection ends by itself.
MOST_KILLS = 20
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(hours=1)
# Message for backends that cannot kill a single replica.
BACKEND_CANNOT_KILL = messages.REHEARSAL_UNSUPPORTED()
# Message for jobs whose processes find one another only once, when they start.
NOTHING_IS_REPLACED = messages.NO_REPLACEABLE_REPLICA()


@dataclass(frozen=True)
class Rehearsal:
    """Fault injection of one job.

    ``kill`` is a role, ``by`` the user who requested it, ``last`` the time of the start or of the last kill, and
    ``done`` the number of kills so far.
    """

    kill: str
    every: timedelta
    by: str
    last: datetime
    done: int = 0

    def next(self, now: datetime) -> Rehearsal | None:
        """Return the state after one more kill at ``now``, or None if that was the last one."""
        after = replace(self, last=now, done=self.done + 1)
        return after if after.done < MOST_KILLS else None

    def to_json(self) -> dict[str, Any]:
        every, last = quantities.span_text(self.every), self.last.isoformat()
        return {"kill": self.kill, "every": every, "by": self.by, "last": last, "done": self.done}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Rehearsal:
        every, last = quantities.span(body["every"]), datetime.fromisoformat(body["last"])
        return cls(body["kill"], every, body["by"], last, body["done"])


def no_rehearsal(spec: Mapping[str, Any], here: bool) -> str:
    """Return why a job with this specification cannot inject faults, or an empty text if it can.

    ``here``: whether the backend can kill a replica.
    """
    if meets_once(spec["framework"], spec["roles"][contract.PSERVER]["replicas"]):
        return NOTHING_IS_REPLACED
    return "" if here else BACKEND_CANNOT_KILL


def problems(request: Mapping[Any, Any]) -> dict[str, list[str]]:
    """Return the problems of a request such as ``{"kill": "trainer", "every": "10s"}``, as messages by field."""
    found: dict[str, list[str]] = {
        str(key): [messages.REHEARSAL_UNKNOWN_FIELD()] for key in set(request) - {"kill", "every"}
    }
    if request.get("kill") not in contract.ROLES:
        found["kill"] = [messages.REHEARSAL_ROLE_INVALID(names=", ".join(contract.ROLES))]
    try:
        every = quantities.span(request.get("every"))
    except ValueError as problem:
        return {**found, "every": [str(problem)]}
    if not SHORTEST <= every <= LONGEST:
        found["every"] = [
            messages.REHEARSAL_INTERVAL_INVALID(
                least=quantities.span_text(SHORTEST),
                most=quantities.span_text(LONGEST),
                length=quantities.span_text(every),
            )
        ]
    return found


def victim(rehearsal: Rehearsal, replicas: Sequence[ReplicaFact], now: datetime) -> ReplicaFact | None:
    """Return the replica to kill now, or None.

    It is the registered replica of the role with the fewest starts; among equals, the one with the highest index. None
    once a trainer has finished: a replica that is killed then would not be started again.
    """
    trainers = [replica for replica in replicas if replica.role == contract.TRAINER and not replica.dismissed]
    if now < rehearsal.last + rehearsal.every or any(trainer.succeeded or trainer.failed for trainer in trainers):
        return None
    working = [
        replica
        for replica in replicas
        if replica.role == rehearsal.kill and replica.registered and not (replica.ended or replica.dismissed)
    ]
    return min(working, key=lambda replica: (replica.start_number, -replica.index), default=None)
