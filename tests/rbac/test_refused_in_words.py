"""Refusals are messages, on the page and over HTTP, and change nothing."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

import pytest
from django.test import Client

from jobs.lifecycle.states import JobState
from jobs.messages import jobs as job_messages
from rbac import messages
from rbac.models import AuditEntry, Invitation, Membership, Namespace
from tests.factories import make_job, make_user
from tests.messages import pattern
from tests.personas import Personas

PASSWORD = "a-long-enough-one"


@dataclass(frozen=True)
class Deed:
    """One action by its page and its API call."""

    page: str
    call: str
    words: str  # a regular expression
    body: dict[str, str] = field(default_factory=dict)
    method: str = "delete"
    status: int = 409


LAST_OWNER_GOES = Deed(
    "/n/team/members/owner/remove", "/api/v1/namespaces/team/members/owner", pattern(messages.LAST_OWNER)
)
LAST_OWNER_SHRINKS = Deed(
    "/n/team/members/owner/role",
    "/api/v1/namespaces/team/members",
    pattern(messages.LAST_OWNER),
    {"username": "owner", "role": "viewer"},
    "post",
)
INVITES_ONESELF = Deed(
    "/n/team/invitations",
    "/api/v1/namespaces/team/invitations",
    pattern(messages.SELF_INVITATION),
    {"who": "owner", "role": "viewer"},
    "post",
)
CLOSES_WHILE_JOBS_RUN = Deed(
    "/n/team/close",
    "/api/v1/namespaces/team",
    pattern(job_messages.NAMESPACE_HAS_ACTIVE_JOBS, count=1),
    {"name": "team"},
)


@pytest.fixture
def running(personas: Personas) -> None:
    make_job(personas.namespace, personas.owner, state=JobState.RUNNING)


def everything() -> tuple[object, ...]:
    members = sorted(Membership.objects.values_list("namespace__name", "user__username", "role"))
    return members, Invitation.objects.count(), list(Namespace.objects.values_list("name", "closed"))


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    "deed",
    [LAST_OWNER_GOES, LAST_OWNER_SHRINKS, INVITES_ONESELF, CLOSES_WHILE_JOBS_RUN],
    ids=["the last owner goes", "the last owner gives up the role", "inviting oneself", "closing while jobs run"],
)
class TestRefused:
    def test_on_the_page(self, personas: Personas, deed: Deed) -> None:
        before = everything()
        page = personas.client("owner").post(deed.page, deed.body, follow=True)
        assert re.search(deed.words, html.unescape(page.content.decode()))
        assert everything() == before

    def test_over_http(self, personas: Personas, deed: Deed) -> None:
        before = everything()
        ask = getattr(personas.client("owner"), deed.method)
        answer = ask(deed.call, deed.body, content_type="application/json")
        assert answer.status_code == deed.status
        assert re.search(deed.words, answer.content.decode())
        assert everything() == before

    def test_the_audit_log_records_no_action(self, personas: Personas, deed: Deed) -> None:
        before = AuditEntry.objects.filter(outcome="done").count()
        personas.client("owner").post(deed.page, deed.body)
        assert AuditEntry.objects.filter(outcome="done").count() == before


def test_a_session_that_was_there_before_signing_in_is_no_key_to_it(db: None) -> None:
    make_user("ada", password=PASSWORD)
    client = Client()
    session = client.session
    session["planted"] = True
    session.save()
    planted = session.session_key
    client.post("/sign-in", {"username": "ada", "password": PASSWORD})
    assert client.session.session_key != planted
    attacker = Client()
    attacker.cookies["regatta-session"] = planted
    assert attacker.get("/n/ada/jobs").status_code == 302


def test_a_form_of_a_tab_whose_account_changed_asks_for_a_reload(db: None) -> None:
    for name in ("ada", "bob"):
        make_user(name, password=PASSWORD)
    browser = Client(enforce_csrf_checks=True)

    def token() -> str:
        page = "/tokens" if browser.session.get("_auth_user_id") else "/sign-in"
        return str(browser.get(page).context["csrf_token"])

    browser.post("/sign-in", {"username": "ada", "password": PASSWORD, "csrfmiddlewaretoken": token()})
    stale = token()
    browser.post("/sign-out", {"csrfmiddlewaretoken": stale})
    browser.post("/sign-in", {"username": "bob", "password": PASSWORD, "csrfmiddlewaretoken": token()})
    answer = browser.post("/tokens", {"name": "of ada?", "csrfmiddlewaretoken": stale})
    assert answer.status_code == 403
    assert "you signed in again in another tab" in answer.content.decode()
