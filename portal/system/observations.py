"""Observations of the installation, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Process:
    """Last heartbeat of a process of the portal. ``pass_seconds``: duration of its last pass; None if it has none."""

    kind: str
    host: str
    pid: int
    version: str
    started: datetime
    seen: datetime
    last_error: str = ""
    last_error_at: datetime | None = None
    pass_seconds: float | None = None
    pass_at: datetime | None = None


@dataclass(frozen=True)
class Processes:
    """Heartbeats of all processes. ``version`` is that of the process that observes."""

    rows: tuple[Process, ...]
    version: str


@dataclass(frozen=True)
class TaskFailure:
    """A periodic task of the sweep whose last run failed."""

    name: str
    since: datetime
    failures: int
    error: str


@dataclass(frozen=True)
class Database:
    vendor: str
    version: str
    size: int | None
    pending_migrations: int


@dataclass(frozen=True)
class Redis:
    version: str


@dataclass(frozen=True)
class Etcd:
    version: str
    members: int
    reachable: int
    size: int
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kubernetes:
    """``leader``: holder of the controller's lease; None if the lease is not readable or does not exist."""

    version: str
    leader: str | None = None
    renewed: datetime | None = None


@dataclass(frozen=True)
class Storage:
    """``where``: directory, or bucket without its service."""

    where: str


@dataclass(frozen=True)
class Unused:
    """A server that the settings do not name."""

    name: str


@dataclass(frozen=True)
class Unreachable:
    """A check that failed. ``error``: class of the error; it never holds an address."""

    name: str
    error: str


@dataclass(frozen=True)
class Disk:
    """Space and inodes of a file system. ``inodes`` is 0 where the file system has no fixed number."""

    name: str
    path: str
    total: int
    free: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True)
class QueuedJob:
    """The job that has waited longest."""

    job: str
    name: str
    namespace: str
    since: datetime
    why: str


@dataclass(frozen=True)
class Queue:
    """Number of jobs by state, and the oldest queued one."""

    states: Mapping[str, int]
    oldest: QueuedJob | None


@dataclass(frozen=True)
class Streams:
    """Streams with blocks that are not merged. ``waiting_since``: end of the first job whose streams wait for it."""

    blocks: int
    streams: int
    waiting_since: datetime | None


@dataclass(frozen=True)
class Certificate:
    """The TLS certificate of the portal's address. ``expires`` is None if it cannot be read; ``error`` says why."""

    host: str
    expires: datetime | None
    error: str = ""


@dataclass(frozen=True)
class Restoration:
    """The last restoration of the database: when, to the state of which time, and the attempts that were concerned."""

    at: datetime
    point: str
    unknown: int
    missing: int


@dataclass(frozen=True)
class TokenOwner:
    """Tokens of one account that expire soon. ``namespace`` is that of a service account."""

    owner: str
    namespace: str
    count: int
    first: datetime


@dataclass(frozen=True)
class Tokens:
    """Tokens that expire within ``days``, by owner."""

    days: int
    owners: tuple[TokenOwner, ...]


@dataclass(frozen=True)
class Credential:
    """A credential of the portal. ``expires`` is None if it carries no date; ``renewed`` by the cluster."""

    name: str
    expires: datetime | None
    renewed: bool = False


@dataclass(frozen=True)
class Mail:
    """The queue of e-mails, and those of the last day that could not be sent and are still unsent.

    ``is_configured``: a mail server is set. ``confirms_accounts``: sign-up is open, and sends a link by e-mail.
    """

    waiting: int
    oldest_due: datetime | None
    unsent: int
    given_up: int
    last_error: str = ""
    is_configured: bool = field(default=True)
    confirms_accounts: bool = field(default=False)


Observation = (
    Processes
    | TaskFailure
    | Database
    | Redis
    | Etcd
    | Kubernetes
    | Storage
    | Unused
    | Unreachable
    | Disk
    | Queue
    | Streams
    | Certificate
    | Restoration
    | Tokens
    | Credential
    | Mail
)
