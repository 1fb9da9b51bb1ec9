"""Rules of the page *System*: vectors of observations with their status and message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portal.system import messages, rules
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
    QueuedJob,
    Redis,
    Restoration,
    Storage,
    Streams,
    TaskFailure,
    TokenOwner,
    Tokens,
    Unreachable,
    Unused,
)
from portal.system.rules import Status, judge
from runtime.messages import Message, Template

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
GIB = 1024**3
OK, UNKNOWN, WARNING, FAILED = Status.OK, Status.UNKNOWN, Status.WARNING, Status.FAILED


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def ahead(**span: float) -> datetime:
    return NOW + timedelta(**span)


PROCESS = Process("worker", "node-1", 17, "1.0", ago(hours=3), ago(seconds=4))
ETCD = Etcd("3.6.11", members=3, reachable=3, size=GIB)
DISK = Disk("data", "/data", total=100 * GIB, free=50 * GIB, inodes=1000, inodes_free=500)
OLDEST = QueuedJob("id", "digits", "team", ago(minutes=5), "It waits for quota.")
MAIL = Mail(waiting=0, oldest_due=None, unsent=0, given_up=0)
OWNER = TokenOwner("ada", "", 2, ahead(days=3))

# The observation of one entry, with its status and the template of its message.
VECTORS: list[tuple[Observation, Status, Template]] = [
    (TaskFailure("e-mail", ago(hours=1), 3, "refused"), FAILED, messages.TASK_FAILING),
    (Database("postgresql", "15.3", GIB, 0), OK, messages.SERVER_REACHABLE),
    (Database("postgresql", "15.3", GIB, 2), FAILED, messages.MIGRATIONS_PENDING),
    (Restoration(ago(hours=23), "2026-11-26T12:00:00", 2, 1), WARNING, messages.DATABASE_RESTORED),
    (Redis("7.2"), OK, messages.SERVER_REACHABLE),
    (Storage("/data/storage"), OK, messages.SERVER_REACHABLE),
    (ETCD, OK, messages.SERVER_REACHABLE),
    (replace(ETCD, reachable=2), WARNING, messages.ETCD_MEMBERS_DOWN),
    (replace(ETCD, alarms=("NOSPACE",)), FAILED, messages.ETCD_ALARM),
    (replace(ETCD, reachable=2, alarms=("NOSPACE",)), FAILED, messages.ETCD_ALARM),
    (Kubernetes("v1.30"), UNKNOWN, messages.LEASE_UNKNOWN),
    (Kubernetes("v1.30", "pod-1", ago(seconds=30)), OK, messages.LEASE_HELD),
    (Kubernetes("v1.30", "pod-1", ago(seconds=31)), FAILED, messages.LEASE_STALE),
    (Unused("redis"), OK, messages.SERVER_NOT_USED),
    (Unused("etcd"), OK, messages.COORDINATION_EMBEDDED),
    (Unused("kubernetes"), OK, messages.CLUSTER_NOT_USED),
    (Unused("certificate"), OK, messages.CERTIFICATE_NOT_USED),
    (Unused("host"), UNKNOWN, messages.CERTIFICATE_NO_HOST),
    (Unreachable("database", "OSError"), FAILED, messages.DATABASE_UNREACHABLE),
    (Unreachable("redis", "OSError"), FAILED, messages.REDIS_UNREACHABLE),
    (Unreachable("etcd", "OSError"), FAILED, messages.ETCD_UNREACHABLE),
    (Unreachable("kubernetes", "OSError"), FAILED, messages.KUBERNETES_UNREACHABLE),
    (Unreachable("storage", "OSError"), FAILED, messages.STORAGE_UNREACHABLE),
    (DISK, OK, messages.DISK_SPACE),
    (replace(DISK, free=10 * GIB), OK, messages.DISK_SPACE),
    (replace(DISK, free=9 * GIB), WARNING, messages.DISK_SPACE_LOW),
    (replace(DISK, free=2 * GIB), FAILED, messages.DISK_SPACE_OUT),
    (replace(DISK, total=0, free=0), FAILED, messages.DISK_SPACE_OUT),
    (replace(DISK, inodes_free=99), WARNING, messages.INODES_LOW),
    (replace(DISK, inodes=0, inodes_free=0), OK, messages.DISK_SPACE),
    (Queue({}, None), OK, messages.QUEUE_EMPTY),
    (Queue({}, OLDEST), OK, messages.QUEUE_WAITS),
    (Queue({}, replace(OLDEST, since=ago(hours=1))), WARNING, messages.QUEUE_WAITS_LONG),
    (Streams(0, 0, None), OK, messages.STREAMS_MERGED),
    (Streams(70, 1, None), OK, messages.STREAMS_WAIT),
    (Streams(70, 1, ago(minutes=14)), OK, messages.STREAMS_WAIT),
    (Streams(70, 1, ago(minutes=15)), WARNING, messages.STREAMS_LAG),
    (Certificate("train.example.org", ahead(days=21)), OK, messages.CERTIFICATE_VALID),
    (Certificate("train.example.org", ahead(days=20)), WARNING, messages.CERTIFICATE_EXPIRES),
    (Certificate("train.example.org", ahead(days=6)), FAILED, messages.CERTIFICATE_EXPIRES),
    (Certificate("train.example.org", NOW), FAILED, messages.CERTIFICATE_EXPIRED),
    (Certificate("train.example.org", None, "TimeoutError"), UNKNOWN, messages.CERTIFICATE_UNREADABLE),
    (Tokens(14, ()), OK, messages.TOKENS_NONE),
    (Tokens(14, (OWNER,)), OK, messages.TOKENS_EXPIRE),
    (Tokens(14, (OWNER, replace(OWNER, namespace="team"))), WARNING, messages.TOKENS_EXPIRE),
    (Credential("registry", None), OK, messages.CREDENTIAL_WITHOUT_DATE),
    (Credential("registry", ahead(days=7)), OK, messages.CREDENTIAL_VALID),
    (Credential("registry", ahead(days=6)), WARNING, messages.CREDENTIAL_EXPIRES),
    (Credential("registry", NOW), FAILED, messages.CREDENTIAL_EXPIRED),
    (Credential("service-account", ahead(hours=1), renewed=True), OK, messages.CREDENTIAL_RENEWED),
    (Credential("service-account", ago(hours=1), renewed=True), FAILED, messages.CREDENTIAL_EXPIRED),
    (MAIL, OK, messages.MAIL_FLOWS),
    (replace(MAIL, is_configured=False), UNKNOWN, messages.MAIL_TO_OUTPUT),
    (replace(MAIL, is_configured=False, confirms_accounts=True), WARNING, messages.MAIL_SERVER_MISSING),
    (replace(MAIL, confirms_accounts=True), OK, messages.MAIL_FLOWS),
    (replace(MAIL, waiting=2, oldest_due=ago(minutes=4)), OK, messages.MAIL_WAITS),
    (replace(MAIL, waiting=2, oldest_due=ago(minutes=5)), WARNING, messages.MAIL_LATE),
    (replace(MAIL, unsent=1, last_error="SMTPServerDisconnected"), WARNING, messages.MAIL_FAILS),
    (replace(MAIL, unsent=1, given_up=1), FAILED, messages.MAIL_GIVEN_UP),
]


def code_of(text: str) -> str:
    assert isinstance(text, Message)
    return text.code


@pytest.mark.parametrize(("seen", "status", "template"), VECTORS)
def test_an_observation_has_its_status_and_message(seen: Observation, status: Status, template: Template) -> None:
    (entry,) = judge([seen], NOW)
    assert (entry.status, code_of(entry.message)) == (status, template.code)


def test_every_kind_of_observation_has_a_rule_and_a_vector() -> None:
    assert {type(seen) for seen, _, _ in VECTORS} | {Processes} == set(rules.RULES)


def test_the_oldest_job_without_a_reason_is_next_to_start() -> None:
    (entry,) = judge([Queue({}, replace(OLDEST, why=""))], NOW)
    assert entry.message == messages.QUEUE_WAITS(why=messages.QUEUE_NEXT())


# --- Processes -------------------------------------------------------------------------------------------------------
def workers(*rows: Process) -> list[tuple[Status, str]]:
    """Return the entries of workers, by status and code."""
    entries = judge([Processes(rows, "1.0")], NOW)
    return [(entry.status, code_of(entry.message)) for entry in entries if entry.name == "worker"]


@pytest.mark.parametrize(
    ("change", "status", "template"),
    [
        ({}, OK, messages.PROCESS_REPORTS),
        ({"seen": ago(seconds=34)}, OK, messages.PROCESS_REPORTS),
        ({"version": "0.9"}, WARNING, messages.PROCESS_OTHER_VERSION),
        ({"pass_seconds": 10.0}, OK, messages.PROCESS_REPORTS),
        ({"pass_seconds": 10.1}, WARNING, messages.PASS_SLOW),
        ({"last_error": "refused", "last_error_at": ago(minutes=9)}, WARNING, messages.PROCESS_REPORTED_ERROR),
        ({"last_error": "refused", "last_error_at": ago(minutes=10)}, OK, messages.PROCESS_REPORTS),
    ],
)
def test_a_process_that_reports_has_its_status(change: dict[str, Any], status: Status, template: Template) -> None:
    assert workers(replace(PROCESS, **change)) == [(status, template.code)]


def test_a_kind_without_a_process_that_reports_has_failed() -> None:
    assert workers() == [(FAILED, messages.PROCESS_KIND_MISSING.code)]


@pytest.mark.invariant("A process that has not reported for 35 seconds counts as failed until another one replaces it.")
def test_a_silent_process_has_failed() -> None:
    silent = replace(PROCESS, seen=ago(seconds=35))
    assert workers(silent) == [
        (FAILED, messages.PROCESS_SILENT.code),
        (FAILED, messages.PROCESS_KIND_MISSING.code),
    ]


def test_a_silent_process_beside_another_has_failed_alone() -> None:
    silent = replace(PROCESS, pid=18, seen=ago(seconds=35))
    assert workers(PROCESS, silent) == [(OK, messages.PROCESS_REPORTS.code), (FAILED, messages.PROCESS_SILENT.code)]


def test_a_silent_process_that_was_replaced_is_a_warning_for_some_minutes() -> None:
    heir = replace(PROCESS, pid=18, started=ago(seconds=30))
    silent = replace(PROCESS, seen=ago(seconds=31))
    assert workers(heir, silent) == [(OK, messages.PROCESS_REPORTS.code), (WARNING, messages.PROCESS_REPLACED.code)]


def test_a_process_that_was_replaced_long_ago_is_not_shown() -> None:
    silent = replace(PROCESS, pid=18, started=ago(hours=9), seen=ago(hours=4))
    assert workers(PROCESS, silent) == [(OK, messages.PROCESS_REPORTS.code)]


def test_attention_counts_warnings_and_failures() -> None:
    entries = judge([DISK, replace(DISK, free=9 * GIB), replace(DISK, free=0), Unused("host")], NOW)
    assert rules.attention(entries) == 2


def test_a_restoration_is_shown_for_a_day() -> None:
    assert judge([Restoration(ago(days=1), "", 0, 0)], NOW) == []
