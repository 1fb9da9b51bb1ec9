"""Rehearsed failure: a replica of a role is killed every so often, so that the owner sees the job survive. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from jobs.frameworks.definitions import meets_once
from jobs.lifecycle.observations import ReplicaFact
from jobs.spec import quantities
from runtime import contract

# A rehearsal is over after so many.
MOST_KILLS = 20
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(hours=1)
# Said where the backend cannot kill one of its replicas.
NOT_HERE = "Failure can be rehearsed where jobs run as processes of one machine, and not here."
# Said of a job whose processes meet once.
NOT_THIS = "Nothing of this job can be replaced while it runs, so there is no survival to rehearse."


@dataclass(frozen=True)
class Rehearsal:
    """``kill`` is a role, ``by`` who wished for it; ``last`` is when it began or last killed, ``done`` how often."""

    kill: str
    every: timedelta
    by: str
    last: datetime
    done: int = 0

    def next(self, now: datetime) -> Rehearsal | None:
        """After another kill; None where that was the last."""
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
    """Why a job of that specification cannot rehearse failure; empty where it can. ``here``: the backend can kill."""
    if meets_once(spec["framework"], spec["roles"][contract.PSERVER]["replicas"]):
        return NOT_THIS
    return "" if here else NOT_HERE


def problems(request: Mapping[Any, Any]) -> dict[str, list[str]]:
    """What is wrong with a wish such as ``{"kill": "trainer", "every": "10s"}``: messages by field."""
    found = {
        str(key): ["There is no such field; known are kill and every."] for key in set(request) - {"kill", "every"}
    }
    if request.get("kill") not in contract.ROLES:
        found["kill"] = [f"Name the role to be killed: {', '.join(contract.ROLES)}; or null to end the rehearsal."]
    try:
        every = quantities.span(request.get("every"))
    except ValueError as problem:
        return {**found, "every": [str(problem)]}
    if not SHORTEST <= every <= LONGEST:
        bounds = f"{quantities.span_text(SHORTEST)} to {quantities.span_text(LONGEST)}"
        found["every"] = [f"Choose a time of {bounds}, not {quantities.span_text(every)}."]
    return found


def victim(rehearsal: Rehearsal, replicas: Sequence[ReplicaFact], now: datetime) -> ReplicaFact | None:
    """Who is to be killed now: of those of the role that work, the one that was killed least often, the last of them.

    Nobody while a trainer has come to its end: what is killed then would not be started again.
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
