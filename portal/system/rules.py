"""Rules that judge observations of the installation: a status and a message for each entry of the page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from portal.system import messages
from portal.system.observations import (
    Certificate,
    Credential,
    Database,
    Disk,
    Etcd,
    Kubernetes,
    Mail,
    Observation,
    Process,
    Processes,
    Queue,
    Redis,
    Restoration,
    Storage,
    Streams,
    TaskFailure,
    Tokens,
    Unreachable,
    Unused,
)

# The kinds of processes of which at least one must report.
KINDS = ("web", "worker", "sweep")
# A process reports every 10 s.
SILENT = timedelta(seconds=35)
# A process that missed a report counts as replaced at once if another one has started since.
MISSED = timedelta(seconds=15)
# A process that was replaced is shown for so long.
SHOW_REPLACED = timedelta(minutes=15)
ERROR_IS_RECENT = timedelta(minutes=10)
PASS_LIMIT_SECONDS = 10.0
SPACE_LOW, SPACE_OUT = 10.0, 3.0  # percent
LONG_WAIT = timedelta(hours=1)
STREAM_LAG = timedelta(minutes=15)
LEASE_STALE = timedelta(seconds=30)
EXPIRES_SOON, EXPIRES_AT_ONCE = timedelta(days=21), timedelta(days=7)
RESTORED_RECENTLY = timedelta(days=1)
MAIL_LATE = timedelta(minutes=5)


class Status(StrEnum):
    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILED = "failed"


NEEDS_ATTENTION = frozenset({Status.WARNING, Status.FAILED})


@dataclass(frozen=True)
class Entry:
    """One line of the page. ``facts`` are the values of the observation, for the columns."""

    section: str
    name: str
    status: Status
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def judge(observations: Iterable[Observation], now: datetime) -> list[Entry]:
    """Return the entries of the observations, in their order."""
    return [entry for seen in observations for entry in RULES[type(seen)](seen, now)]


def attention(entries: Iterable[Entry]) -> int:
    """Return the number of entries that need the operator's attention."""
    return sum(entry.status in NEEDS_ATTENTION for entry in entries)


# --- Components ------------------------------------------------------------------------------------------------------
def _processes(seen: Processes, now: datetime) -> Iterator[Entry]:
    live = [row for row in seen.rows if now - row.seen < SILENT]
    for row in seen.rows:
        status, message = _process(row, live, seen.version, now)
        if message:
            yield Entry("components", row.kind, status, message, asdict(row))
    for kind in KINDS:
        if all(row.kind != kind for row in live):
            yield Entry("components", kind, Status.FAILED, messages.PROCESS_KIND_MISSING(kind=kind))


def _process(row: Process, live: list[Process], version: str, now: datetime) -> tuple[Status, str]:
    """Judge a process. The message is empty for one that was replaced long ago."""
    silence = now - row.seen
    seconds = int(silence.total_seconds())
    heir = next((other for other in live if other.kind == row.kind and other.started >= row.seen), None)
    if heir is not None and silence >= SHOW_REPLACED:
        return Status.OK, ""
    if heir is not None and silence >= MISSED:
        return Status.WARNING, messages.PROCESS_REPLACED(seconds=seconds, pid=str(heir.pid))
    if silence >= SILENT:
        return Status.FAILED, messages.PROCESS_SILENT(seconds=seconds)
    if row.version != version:
        return Status.WARNING, messages.PROCESS_OTHER_VERSION(version=row.version, expected=version)
    if row.pass_seconds is not None and row.pass_seconds > PASS_LIMIT_SECONDS:
        return Status.WARNING, messages.PASS_SLOW(seconds=f"{row.pass_seconds:.1f}", limit=f"{PASS_LIMIT_SECONDS:g}")
    if row.last_error_at is not None and now - row.last_error_at < ERROR_IS_RECENT:
        minutes = int(ERROR_IS_RECENT.total_seconds() // 60)
        return Status.WARNING, messages.PROCESS_REPORTED_ERROR(minutes=minutes, error=row.last_error)
    return Status.OK, messages.PROCESS_REPORTS()


def _task(seen: TaskFailure, now: datetime) -> Iterator[Entry]:
    message = messages.TASK_FAILING(count=seen.failures, error=seen.error)
    yield Entry("tasks", seen.name, Status.FAILED, message, asdict(seen))


# --- Servers ---------------------------------------------------------------------------------------------------------
def _database(seen: Database, now: datetime) -> Iterator[Entry]:
    if seen.pending_migrations:
        status, message = Status.FAILED, messages.MIGRATIONS_PENDING(count=seen.pending_migrations)
    else:
        status, message = Status.OK, messages.SERVER_REACHABLE()
    yield Entry("servers", "database", status, message, asdict(seen))


def _restoration(seen: Restoration, now: datetime) -> Iterator[Entry]:
    if now - seen.at < RESTORED_RECENTLY:
        message = messages.DATABASE_RESTORED(
            time=f"{seen.at:%Y-%m-%d %H:%M} UTC",
            point=seen.point[:16].replace("T", " "),
            unknown=seen.unknown,
            missing=seen.missing,
        )
        yield Entry("servers", "restoration", Status.WARNING, message, asdict(seen))


def _redis(seen: Redis, now: datetime) -> Iterator[Entry]:
    yield Entry("servers", "redis", Status.OK, messages.SERVER_REACHABLE(), asdict(seen))


def _etcd(seen: Etcd, now: datetime) -> Iterator[Entry]:
    if seen.alarms:
        status, message = Status.FAILED, messages.ETCD_ALARM(alarms=", ".join(seen.alarms))
    elif seen.reachable < seen.members:
        status = Status.WARNING
        message = messages.ETCD_MEMBERS_DOWN(reachable=seen.reachable, members=seen.members)
    else:
        status, message = Status.OK, messages.SERVER_REACHABLE()
    yield Entry("servers", "etcd", status, message, asdict(seen))


def _kubernetes(seen: Kubernetes, now: datetime) -> Iterator[Entry]:
    if not seen.leader or seen.renewed is None:
        status, message = Status.UNKNOWN, messages.LEASE_UNKNOWN()
    elif now - seen.renewed > LEASE_STALE:
        status = Status.FAILED
        message = messages.LEASE_STALE(seconds=int((now - seen.renewed).total_seconds()))
    else:
        status, message = Status.OK, messages.LEASE_HELD(holder=seen.leader)
    yield Entry("servers", "kubernetes", status, message, asdict(seen))


def _storage(seen: Storage, now: datetime) -> Iterator[Entry]:
    yield Entry("servers", "storage", Status.OK, messages.SERVER_REACHABLE(), asdict(seen))


_UNUSED = {"etcd": messages.COORDINATION_EMBEDDED, "kubernetes": messages.CLUSTER_NOT_USED}
_WITHOUT_CERTIFICATE = {
    "certificate": (Status.OK, messages.CERTIFICATE_NOT_USED),
    "host": (Status.UNKNOWN, messages.CERTIFICATE_NO_HOST),
}


def _unused(seen: Unused, now: datetime) -> Iterator[Entry]:
    if seen.name in _WITHOUT_CERTIFICATE:
        status, message = _WITHOUT_CERTIFICATE[seen.name]
        yield Entry("expiry", "certificate", status, message())
    else:
        yield Entry("servers", seen.name, Status.OK, _UNUSED.get(seen.name, messages.SERVER_NOT_USED)())


_UNREACHABLE = {
    "database": messages.DATABASE_UNREACHABLE,
    "redis": messages.REDIS_UNREACHABLE,
    "etcd": messages.ETCD_UNREACHABLE,
    "kubernetes": messages.KUBERNETES_UNREACHABLE,
    "storage": messages.STORAGE_UNREACHABLE,
}


def _unreachable(seen: Unreachable, now: datetime) -> Iterator[Entry]:
    yield Entry("servers", seen.name, Status.FAILED, _UNREACHABLE[seen.name](error=seen.error))


# --- Disk, queue and streams -----------------------------------------------------------------------------------------
def _disk(seen: Disk, now: datetime) -> Iterator[Entry]:
    space = 100.0 * seen.free / seen.total if seen.total else 0.0
    inodes = 100.0 * seen.inodes_free / seen.inodes if seen.inodes else 100.0
    if space < SPACE_OUT:
        status, message = Status.FAILED, messages.DISK_SPACE_OUT(percent=f"{space:.1f}")
    elif space < SPACE_LOW:
        status, message = Status.WARNING, messages.DISK_SPACE_LOW(percent=f"{space:.1f}")
    elif inodes < SPACE_LOW:
        status, message = Status.WARNING, messages.INODES_LOW(percent=f"{inodes:.1f}")
    else:
        status, message = Status.OK, messages.DISK_SPACE(percent=f"{space:.0f}")
    yield Entry("disk", seen.name, status, message, asdict(seen))


def _queue(seen: Queue, now: datetime) -> Iterator[Entry]:
    facts = asdict(seen)
    if seen.oldest is None:
        yield Entry("queue", "jobs", Status.OK, messages.QUEUE_EMPTY(), facts)
        return
    why, waited = seen.oldest.why or messages.QUEUE_NEXT(), now - seen.oldest.since
    if waited < LONG_WAIT:
        yield Entry("queue", "jobs", Status.OK, messages.QUEUE_WAITS(why=why), facts)
    else:
        hours = int(waited.total_seconds() // 3600)
        yield Entry("queue", "jobs", Status.WARNING, messages.QUEUE_WAITS_LONG(hours=hours, why=why), facts)


def _streams(seen: Streams, now: datetime) -> Iterator[Entry]:
    lag = now - seen.waiting_since if seen.waiting_since else timedelta(0)
    if lag >= STREAM_LAG:
        minutes = int(lag.total_seconds() // 60)
        status, message = Status.WARNING, messages.STREAMS_LAG(count=seen.streams, minutes=minutes)
    elif seen.streams:
        status, message = Status.OK, messages.STREAMS_WAIT(count=seen.streams)
    else:
        status, message = Status.OK, messages.STREAMS_MERGED()
    yield Entry("streams", "streams", status, message, asdict(seen))


# --- Expiry ----------------------------------------------------------------------------------------------------------
def _certificate(seen: Certificate, now: datetime) -> Iterator[Entry]:
    if seen.expires is None:
        status = Status.UNKNOWN
        message = messages.CERTIFICATE_UNREADABLE(host=seen.host, error=seen.error)
    elif seen.expires <= now:
        status, message = Status.FAILED, messages.CERTIFICATE_EXPIRED()
    elif (left := seen.expires - now) < EXPIRES_SOON:
        status = Status.FAILED if left < EXPIRES_AT_ONCE else Status.WARNING
        message = messages.CERTIFICATE_EXPIRES(days=left.days)
    else:
        status, message = Status.OK, messages.CERTIFICATE_VALID(days=left.days)
    yield Entry("expiry", "certificate", status, message, asdict(seen))


def _tokens(seen: Tokens, now: datetime) -> Iterator[Entry]:
    count = sum(owner.count for owner in seen.owners)
    if not count:
        message = messages.TOKENS_NONE(days=seen.days)
        yield Entry("expiry", "tokens", Status.OK, message, asdict(seen))
        return
    # Tokens of services stop programs that nobody watches; a person signs in again.
    status = Status.WARNING if any(owner.namespace for owner in seen.owners) else Status.OK
    yield Entry("expiry", "tokens", status, messages.TOKENS_EXPIRE(count=count, days=seen.days), asdict(seen))


def _credential(seen: Credential, now: datetime) -> Iterator[Entry]:
    status, message = _credential_state(seen, now)
    yield Entry("expiry", seen.name, status, message, asdict(seen))


def _credential_state(seen: Credential, now: datetime) -> tuple[Status, str]:
    if seen.expires is None:
        return Status.OK, messages.CREDENTIAL_WITHOUT_DATE()
    if seen.expires <= now:
        return Status.FAILED, messages.CREDENTIAL_EXPIRED()
    date = f"{seen.expires:%Y-%m-%d %H:%M} UTC"
    if seen.renewed:
        return Status.OK, messages.CREDENTIAL_RENEWED(date=date)
    if seen.expires - now < EXPIRES_AT_ONCE:
        return Status.WARNING, messages.CREDENTIAL_EXPIRES(days=(seen.expires - now).days)
    return Status.OK, messages.CREDENTIAL_VALID(date=date)


# --- E-mail ----------------------------------------------------------------------------------------------------------
def _mail(seen: Mail, now: datetime) -> Iterator[Entry]:
    status, message = _mail_state(seen, now)
    yield Entry("mail", "e-mail", status, message, asdict(seen))


def _mail_state(seen: Mail, now: datetime) -> tuple[Status, str]:
    if seen.confirms_accounts and not seen.is_configured:
        return Status.WARNING, messages.MAIL_SERVER_MISSING()
    if seen.given_up:
        return Status.FAILED, messages.MAIL_GIVEN_UP(count=seen.given_up, error=seen.last_error)
    if seen.unsent:
        return Status.WARNING, messages.MAIL_FAILS(count=seen.unsent, error=seen.last_error)
    if seen.oldest_due is not None and (late := now - seen.oldest_due) >= MAIL_LATE:
        minutes = int(late.total_seconds() // 60)
        return Status.WARNING, messages.MAIL_LATE(count=seen.waiting, minutes=minutes)
    if not seen.is_configured:
        return Status.UNKNOWN, messages.MAIL_TO_OUTPUT()
    return Status.OK, messages.MAIL_WAITS(count=seen.waiting) if seen.waiting else messages.MAIL_FLOWS()


RULES: Mapping[type[Any], Callable[[Any, datetime], Iterator[Entry]]] = {
    Processes: _processes,
    TaskFailure: _task,
    Database: _database,
    Restoration: _restoration,
    Redis: _redis,
    Etcd: _etcd,
    Kubernetes: _kubernetes,
    Storage: _storage,
    Unused: _unused,
    Unreachable: _unreachable,
    Disk: _disk,
    Queue: _queue,
    Streams: _streams,
    Certificate: _certificate,
    Tokens: _tokens,
    Credential: _credential,
    Mail: _mail,
}
