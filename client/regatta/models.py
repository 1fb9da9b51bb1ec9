"""Data types of the portal's responses. Unknown fields of newer portals are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Replica:
    """One process of a job's current attempt."""

    name: str
    role: str
    index: int
    state: str
    why: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Replica:
        return cls(body["name"], body["role"], int(body["index"]), body["state"], body.get("why") or "")


@dataclass(frozen=True)
class Line:
    """Line of output. ``seq`` counts over the whole job and is the cursor.

    ``stream`` is stdout, stderr, agent (remarks of the agent beside a replica) or system (the portal itself).
    """

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
    """Lines in order. All lines up to ``last`` were considered; it is the cursor for the next page.

    ``more`` is true if the portal has later lines, even if a filter left this page empty.
    """

    lines: tuple[Line, ...]
    last: int
    more: bool

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Page:
        return cls(tuple(Line.from_json(line) for line in body["lines"]), int(body["last"]), bool(body["more"]))


@dataclass(frozen=True)
class Point:
    """Value of a metric as reported. ``seq`` counts over the whole job and is the cursor."""

    seq: int
    time: float
    attempt: int
    replica: str
    step: float
    key: str
    value: float

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Point:
        numbers = int(body["seq"]), float(body["time"]), int(body["attempt"])
        return cls(*numbers, body["replica"], float(body["step"]), body["key"], float(body["value"]))


@dataclass(frozen=True)
class PointPage:
    """Points in order. All points up to ``last`` were considered; ``more`` is true if the portal has later ones."""

    points: tuple[Point, ...]
    last: int
    more: bool

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PointPage:
        return cls(tuple(Point.from_json(point) for point in body["points"]), int(body["last"]), bool(body["more"]))


@dataclass(frozen=True)
class Artifact:
    """File that a job saved. ``size`` is in bytes."""

    name: str
    size: int
    sha256: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Artifact:
        return cls(body["name"], int(body["size"]), body["sha256"])


@dataclass(frozen=True)
class Version:
    """Version of a dataset: open while it is filled, then sealed permanently. ``size`` is in bytes."""

    number: int
    state: str
    why: str
    files: int
    size: int
    records: int | None
    created: str | None
    sealed: str | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Version:
        counts = int(body.get("files") or 0), int(body.get("size") or 0), body.get("records")
        return cls(
            body["number"], body["state"], body.get("why") or "", *counts, body.get("created"), body.get("sealed")
        )


@dataclass(frozen=True)
class Use:
    """Job that uses a dataset. ``version`` is empty if not specified."""

    name: str
    page: str
    namespace: str
    owner: str
    state: str
    version: str
    began: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Use:
        return cls(**{field.name: str(body[field.name]) for field in fields(cls)})


@dataclass(frozen=True)
class Dataset:
    """Dataset in the state of the request. ``latest`` is the newest sealed version, or None."""

    namespace: str
    name: str
    description: str
    visibility: str
    shared_with: tuple[str, ...]
    format: str
    size: int
    records: int | None
    latest: int | None
    versions: tuple[Version, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Dataset:
        return cls(
            namespace=body["namespace"],
            name=body["name"],
            description=body.get("description") or "",
            visibility=body.get("visibility") or "",
            shared_with=tuple(body.get("shared_with") or ()),
            format=body.get("format") or "",
            size=int(body.get("size") or 0),
            records=body.get("records"),
            latest=body.get("latest"),
            versions=tuple(Version.from_json(version) for version in body.get("versions") or ()),
            raw=body,
        )


@dataclass(frozen=True)
class Upload:
    """File that is being uploaded.

    ``parts`` are the numbers of the parts that the portal has; part ``k`` begins at byte ``k * part_size``.
    ``checksums`` are those with which these parts were sent. ``hash_first``: the portal may have the same content
    already, which it can tell by the SHA-256.
    """

    id: str
    path: str
    size: int
    part_size: int
    parts: frozenset[int]
    complete: bool
    checksums: Mapping[int, str] = field(default_factory=dict)
    hash_first: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Upload:
        return cls(
            id=str(body["id"]),
            path=body["path"],
            size=int(body["size"]),
            part_size=int(body["part_size"]),
            parts=frozenset(body["parts"]),
            complete=bool(body["complete"]),
            checksums=dict(zip(body["parts"], body.get("checksums", ()), strict=False)),
            hash_first=bool(body.get("hash_first", False)),
        )

    @property
    def missing(self) -> tuple[int, ...]:
        """Parts that are still to be sent."""
        return tuple(part for part in range(-(-self.size // self.part_size)) if part not in self.parts)


@dataclass(frozen=True)
class StoredFile:
    """File of a sealed version. ``records`` is None if they were not counted."""

    path: str
    size: int
    sha256: str
    records: int | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> StoredFile:
        return cls(body["path"], int(body["size"]), body["sha256"], body.get("records"))
