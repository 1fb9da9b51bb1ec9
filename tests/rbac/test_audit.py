"""The trail: what a row tells, and that the database lets nobody change one."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import RequestFactory

from portal.common.errors import ValidationFailed
from rbac import audit
from rbac.models import AuditEntry, Outcome
from tests.factories import make_namespace, make_user

pytestmark = pytest.mark.django_db


def test_a_row_tells_who_what_when_from_where_and_why() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.7")
    request.request_id, request.impersonator = "abc", make_user("root", admin=True)
    entry = audit.record(
        "quota.set",
        "vision",
        actor=make_user("ada"),
        namespace=make_namespace("vision"),
        before={"cpu": 1},
        after={"cpu": 2},
        reason="They asked for it.",
        request=request,
    )
    entry.refresh_from_db()
    assert (entry.actor.username, entry.impersonator.username, entry.address) == ("ada", "root", "192.0.2.7")
    assert (entry.namespace, entry.before, entry.after) == ("vision", {"cpu": 1}, {"cpu": 2})
    assert (entry.outcome, entry.reason, entry.request_id) == (Outcome.DONE, "They asked for it.", "abc")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rbac_auditentry SET target = 'nothing'",
        "DELETE FROM rbac_auditentry",
        "UPDATE rbac_auditentry SET reason = reason WHERE 1 = 1",
    ],
)
def test_the_database_itself_refuses_to_change_the_trail(statement: str) -> None:
    audit.record("sign-in", "ada", actor=None)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.get().target == "ada"


def test_the_trail_outlives_a_namespace() -> None:
    namespace = make_namespace("gone")
    audit.record("namespace.create", "gone", actor=None, namespace=namespace)
    namespace.delete()
    assert AuditEntry.objects.get().namespace == "gone"


@pytest.mark.parametrize("reason", ["", " \n ", "x" * 501])
def test_a_change_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValidationFailed, match="Say why"):
        audit.stated(reason)


def test_a_reason_is_kept_on_one_line() -> None:
    assert audit.stated("  more\n work ") == "more work"
