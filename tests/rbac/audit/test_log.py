"""The audit log: the contents of a row, and the protection of rows by the database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from portal.common.clock import now
from portal.common.errors import ValidationFailed
from rbac import messages, retention
from rbac.audit import log as audit_log
from rbac.audit.context import AuditContext
from rbac.models import AuditEntry, Outcome
from tests.factories import make_namespace, make_user
from tests.messages import pattern

pytestmark = pytest.mark.django_db


def test_a_row_holds_actor_action_time_address_and_reason() -> None:
    context = AuditContext("192.0.2.7", "abc", make_user("root", admin=True))
    entry = audit_log.record(
        "quota.set",
        "vision",
        actor=make_user("ada"),
        namespace=make_namespace("vision"),
        before={"cpu": 1},
        after={"cpu": 2},
        reason="They asked for it.",
        context=context,
    )
    entry.refresh_from_db()
    assert (entry.actor.username, entry.impersonator.username, entry.address) == ("ada", "root", "192.0.2.7")
    assert (entry.namespace, entry.before, entry.after) == ("vision", {"cpu": 1}, {"cpu": 2})
    assert (entry.outcome, entry.reason, entry.request_id) == (Outcome.DONE, "They asked for it.", "abc")


@pytest.mark.invariant("The audit log is append-only, also for SQL statements outside the portal.")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rbac_auditentry SET target = 'nothing'",
        "DELETE FROM rbac_auditentry",
        "UPDATE rbac_auditentry SET reason = reason WHERE 1 = 1",
    ],
)
def test_the_database_itself_refuses_to_change_the_audit_log(statement: str) -> None:
    audit_log.record("sign-in", "ada", actor=None)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.get().target == "ada"


def test_the_audit_log_outlasts_a_namespace() -> None:
    namespace = make_namespace("gone")
    audit_log.record("namespace.create", "gone", actor=None, namespace=namespace)
    namespace.delete()
    assert AuditEntry.objects.get().namespace == "gone"


@pytest.mark.parametrize("reason", ["", " \n ", "x" * 501])
def test_a_change_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValidationFailed, match=pattern(messages.REASON_REQUIRED)):
        audit_log.stated(reason)


def test_a_reason_is_kept_on_one_line() -> None:
    assert audit_log.stated("  more\n work ") == "more work"


# --- Retention -------------------------------------------------------------------------------------------------------
def aged(days: float) -> None:
    """Add a row that was written so many days ago."""
    with freeze(now() - timedelta(days=days)):
        audit_log.record("sign-in", f"{days:g}", actor=None)


@contextlib.contextmanager
def freeze(moment: datetime) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: moment)
        yield


_REPLACE = {"sqlite": ("REPLACE", ""), "postgresql": ("INSERT", "ON CONFLICT (id) DO UPDATE SET target = 'x'")}


def left() -> set[str]:
    return set(AuditEntry.objects.values_list("target", flat=True))


@pytest.mark.parametrize("days", [0, 1, 364.9])
def test_the_database_refuses_to_delete_a_row_of_the_last_year(days: float) -> None:
    aged(days)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        AuditEntry.objects.all().delete()
    assert left() == {f"{days:g}"}


def test_a_row_of_more_than_a_year_can_be_deleted_and_not_be_changed() -> None:
    aged(365.1)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        AuditEntry.objects.update(target="nothing")
    assert AuditEntry.objects.all().delete()[0] == 1


def test_no_row_is_replaced() -> None:
    entry = audit_log.record("sign-in", "ada", actor=None)
    begin, end = _REPLACE[connection.vendor]
    columns = "rbac_auditentry (id, at, namespace, action, target, detail, outcome, reason, request_id)"
    values = "VALUES (%s, '2020-01-01', '', 'x', 'x', '{}', 'done', '', '')"
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{begin} INTO {columns} {values} {end}", [entry.pk])
    assert left() == {"ada"}


def test_rows_are_removed_after_the_time_of_the_setting(settings: Settings) -> None:
    settings.KEEP_AUDIT_DAYS = 400.0
    for days in (1, 366, 399, 401, 1000):
        aged(days)
    assert retention.prune(now())
    assert left() == {"1", "366", "399"}


def test_a_shorter_time_than_the_database_allows_removes_nothing_younger(settings: Settings) -> None:
    settings.KEEP_AUDIT_DAYS = 10.0
    aged(20)
    aged(366)
    retention.prune(now())
    assert left() == {"20"}


def test_a_setting_of_0_keeps_all_rows(settings: Settings) -> None:
    settings.KEEP_AUDIT_DAYS = 0.0
    aged(5000)
    assert retention.prune(now())
    assert left() == {"5000"}


def test_a_pass_removes_a_bounded_number_of_rows_the_oldest_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.KEEP_AUDIT_DAYS = 400.0
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "PASS", 4)
    for days in (501, 503, 500, 502, 504):
        aged(days)
    assert not retention.prune(now())
    assert left() == {"500"}
    assert retention.prune(now())
    assert left() == set()
