"""The origin of a change in the audit log: the request of a page or of the API, and none elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.tasks import reconcile_job
from portal.common.trusted_proxies import network
from rbac.audit import context as audit_context
from rbac.audit import log as audit_log
from rbac.audit.context import NO_REQUEST, AuditContext
from rbac.models import AuditEntry
from rbac.services import ensure_personal_namespace
from rbac.sign_in.impersonation import IMPERSONATOR
from tests.factories import make_user
from tests.personas import Personas

pytestmark = pytest.mark.django_db
SENDER = {"REMOTE_ADDR": "192.0.2.7", "HTTP_X_REQUEST_ID": "a-request-of-mine"}


@pytest.fixture(autouse=True)
def _sender_is_a_trusted_proxy(settings: Settings) -> None:
    """Only such a sender chooses the id of its requests."""
    settings.TRUSTED_PROXIES = (network(SENDER["REMOTE_ADDR"]),)


def origin_of(row: AuditEntry) -> tuple[Any, ...]:
    return row.address, row.request_id, row.impersonator


def test_a_change_on_a_page_has_the_address_and_the_id_of_its_request(personas: Personas) -> None:
    browser = Client(**SENDER)
    browser.force_login(personas.owner)
    browser.post("/n/team/members/viewer/remove")
    row = AuditEntry.objects.get(action="member.remove")
    assert (row.actor, *origin_of(row)) == (personas.owner, "192.0.2.7", "a-request-of-mine", None)


def test_a_change_by_the_api_has_the_address_and_the_id_of_its_request(personas: Personas) -> None:
    api = APIClient(**SENDER)
    api.force_login(personas.owner)
    assert api.delete("/api/v1/namespaces/team/members/viewer").status_code == 204
    row = AuditEntry.objects.get(action="member.remove")
    assert (row.actor, *origin_of(row)) == (personas.owner, "192.0.2.7", "a-request-of-mine", None)


def test_the_end_of_an_impersonation_has_the_impersonator(personas: Personas) -> None:
    browser = Client(**SENDER)
    browser.force_login(personas.viewer)
    session = browser.session
    session[IMPERSONATOR] = personas.admin.pk
    session.save()
    browser.post("/sign-out")
    row = AuditEntry.objects.get(action="sign-out")
    assert (row.actor, *origin_of(row)) == (personas.viewer, "192.0.2.7", "a-request-of-mine", personas.admin)


def test_the_context_ends_with_its_request(personas: Personas) -> None:
    seen: list[AuditContext] = []
    Client(**SENDER).get("/sign-in")
    seen.append(audit_context.current())
    assert seen == [NO_REQUEST]


def test_nested_contexts_restore_the_outer_one() -> None:
    outer, inner = AuditContext(request_id="outer"), AuditContext(request_id="inner")
    with audit_context.use(outer):
        with pytest.raises(KeyError), audit_context.use(inner):
            raise KeyError
        assert audit_context.current() is outer
    assert audit_context.current() is NO_REQUEST


@pytest.mark.parametrize("remote", ["", "unix:", "192.0.2.7:80"])
def test_other_texts_are_no_address(remote: str) -> None:
    assert audit_context.address_of(remote) is None


# --- Outside of a request --------------------------------------------------------------------------------------------
def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_a_thread_that_a_request_starts_has_no_context() -> None:
    seen: list[AuditContext] = []
    with audit_context.use(AuditContext("192.0.2.7", "a-request-of-mine")):
        in_thread(lambda: seen.append(audit_context.current()))
    assert seen == [NO_REQUEST]


def test_a_task_writes_rows_without_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs tasks in a process of its own, where no middleware has run."""
    monkeypatch.setattr(
        "jobs.reconcile.reconciler.reconcile", lambda job: audit_log.record("job.cancel", job, actor=None)
    )
    reconcile_job.apply(("a-job",)).get()
    assert origin_of(AuditEntry.objects.get(action="job.cancel")) == (None, "", None)


def test_rows_of_the_platform_itself_have_no_origin_even_in_a_request() -> None:
    with audit_context.use(AuditContext("192.0.2.7", "a-request-of-mine")):
        ensure_personal_namespace(make_user("carol"))
    assert origin_of(AuditEntry.objects.get(action="namespace.create", target="carol")) == (None, "", None)
