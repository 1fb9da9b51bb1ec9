"""Phases and conditions of a PaddleJob, and Kubernetes' time format. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Phases that paddle-operator sets, and SUSPENDED. The others are declared only, as in paddle-operator."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    SUSPENDED = "Suspended"
    SCALING = "Scaling"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    TERMINATED = "Terminated"
    SUCCEED = "Succeed"
    UNKNOWN = "Unknown"
    NONE = ""


ENDED = frozenset({Phase.COMPLETED, Phase.FAILED})


class Kind(StrEnum):
    """Types of conditions."""

    VALID = "Valid"
    SUSPENDED = "Suspended"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


Condition = Mapping[str, Any]


# Default messages of conditions. Never empty: Kubernetes 1.20 treats an empty message as null.
_ORDINARY: Mapping[tuple[Kind, bool], str] = {
    (Kind.VALID, True): "The specification can be carried out.",
    (Kind.VALID, False): "The specification cannot be carried out.",
    (Kind.SUSPENDED, True): "The job is suspended.",
    (Kind.SUSPENDED, False): "The job goes on.",
    (Kind.RUNNING, True): "All pods run.",
    (Kind.RUNNING, False): "Not all pods run.",
    (Kind.COMPLETED, True): "The job is completed.",
    (Kind.FAILED, True): "The job has failed.",
}


def condition(kind: Kind, holds: bool, reason: str, message: str = "") -> Condition:
    message_text = message or _ORDINARY[kind, holds]
    return {"type": kind.value, "status": "True" if holds else "False", "reason": reason, "message": message_text}


def merged(before: Sequence[Condition], now: Sequence[Condition], moment: datetime) -> list[dict[str, Any]]:
    """Merge the conditions of ``now`` into those of ``before``, with the time of each one's last transition."""
    old = {entry["type"]: entry for entry in before}
    fresh = {
        entry["type"]: {**entry, "lastTransitionTime": _since(old.get(entry["type"]), entry, moment)} for entry in now
    }
    return [dict(entry) for entry in {**old, **fresh}.values()]


def _since(old: Condition | None, new: Condition, moment: datetime) -> str:
    unchanged = old is not None and old["status"] == new["status"]
    return str(old.get("lastTransitionTime") or written(moment)) if old and unchanged else written(moment)


def since(status: Mapping[str, Any], kind: Kind) -> datetime | None:
    """Return the time since which a condition holds; None if it does not hold."""
    for entry in status.get("conditions") or ():
        if entry["type"] == kind and entry["status"] == "True":
            return moment_of(entry.get("lastTransitionTime"))
    return None


def written(moment: datetime) -> str:
    """Format a time as Kubernetes does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: object) -> datetime | None:
    """Parse the format of ``written``; fractions of a second are accepted."""
    if not text:
        return None
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
