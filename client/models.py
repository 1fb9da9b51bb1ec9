"""What the portal tells, typed. Fields that a newer portal adds are passed over; ``raw`` keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from client.errors import EXIT_NOT_FINISHED, EXIT_OF_STATE


@dataclass(frozen=True)
class Replica:
    """One process of a job's present attempt."""

    name: str
    role: str
    index: int
    state: str
    why: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Replica:
        return cls(body["name"], body["role"], int(body["index"]), body["state"], body.get("why") or "")


@dataclass(frozen=True)
class Job:
    """A job as it stood when it was asked for. Times are ISO 8601 in UTC, None where it has not come to that."""

    id: str
    name: str
    namespace: str
    state: str
    reason: str
    why: str
    attempt: int
    created: str | None
    started: str | None
    finished: str | None
    replicas: tuple[Replica, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Job:
        return cls(
            id=body["id"],
            name=body["name"],
            namespace=body["namespace"],
            state=body["state"],
            reason=body.get("reason") or "",
            why=body.get("why") or "",
            attempt=int(body.get("attempt") or 0),
            created=body.get("created"),
            started=body.get("started"),
            finished=body.get("finished"),
            replicas=tuple(Replica.from_json(replica) for replica in body.get("replicas", ())),
            raw=body,
        )

    @property
    def ended(self) -> bool:
        return self.state in EXIT_OF_STATE

    @property
    def exit_code(self) -> int:
        """0 succeeded, 100 failed, 103 cancelled, 101 not finished."""
        return EXIT_OF_STATE.get(self.state, EXIT_NOT_FINISHED)


@dataclass(frozen=True)
class Line:
    """One line of output. ``seq`` counts over the whole job: the cursor. ``stream`` is stdout, stderr or system."""

    seq: int
    time: str | float
    replica: str
    stream: str
    text: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Line:
        return cls(int(body["seq"]), body["time"], body["replica"], body["stream"], body["text"])


@dataclass(frozen=True)
class Page:
    """Lines in order. Everything up to ``last`` was looked at: the cursor for the next page.

    ``more`` tells whether the portal holds later ones already, even where a filter let no line of this page through.
    """

    lines: tuple[Line, ...]
    last: int
    more: bool

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Page:
        return cls(tuple(Line.from_json(line) for line in body["lines"]), int(body["last"]), bool(body["more"]))


@dataclass(frozen=True)
class Series:
    """One metric, reduced to buckets: five lists of equal length."""

    x: list[float]
    min: list[float]
    max: list[float]
    last: list[float]
    count: list[int]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Series:
        return cls(*(list(body[key]) for key in ("x", "min", "max", "last", "count")))


@dataclass(frozen=True)
class Artifact:
    """A file that a job left. ``size`` in bytes."""

    name: str
    size: int
    sha256: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Artifact:
        return cls(body["name"], int(body["size"]), body["sha256"])
