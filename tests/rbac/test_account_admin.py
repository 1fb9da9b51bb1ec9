"""Administration of accounts, the audit log as a page and a file, and impersonation."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client

from portal.common.clock import now
from portal.common.errors import Conflict, ValidationFailed
from portal.common.messages import requests as requests_messages
from rbac import account_admin, messages
from rbac.audit import log as audit_log
from rbac.audit.log import LONGEST_REASON
from rbac.emails import outbox
from rbac.models import AuditEntry, Session, User
from tests.factories import make_token, make_user
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
WHY = "They left the team."


def test_a_closed_account_is_out_at_once(personas: Personas) -> None:
    browser, secret = personas.client("owner"), make_token(personas.owner)
    account_admin.set_active(actor=personas.admin, username="owner", active=False, reason=WHY)
    assert browser.get("/n/team/jobs").status_code == 302
    answer = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 401
    entry = AuditEntry.objects.get(action="user.disable")
    assert (entry.before, entry.after, entry.reason) == ({"active": True}, {"active": False}, WHY)


def test_a_closed_account_can_be_opened_again(personas: Personas) -> None:
    for active in (False, True):
        account_admin.set_active(actor=personas.admin, username="owner", active=active, reason=WHY)
    assert User.objects.get(username="owner").is_active


@pytest.mark.parametrize("change", [account_admin.set_active, account_admin.set_admin])
def test_admins_cannot_demote_or_close_the_own_account(personas: Personas, change: Any) -> None:
    field = {"active": False} if change is account_admin.set_active else {"admin": False}
    with pytest.raises(Conflict, match=pattern(messages.OWN_ACCOUNT_PROTECTED)):
        change(actor=personas.admin, username="root", reason=WHY, **field)


def test_the_last_admin_stays(personas: Personas) -> None:
    closed = make_user("closed", admin=True)
    User.objects.filter(pk=closed.pk).update(is_active=False)
    with pytest.raises(Conflict, match=pattern(messages.LAST_ADMIN)):
        account_admin.set_admin(actor=closed, username="root", admin=False, reason=WHY)


def test_without_a_reason_nothing_is_done(personas: Personas) -> None:
    with pytest.raises(ValidationFailed):
        account_admin.set_admin(actor=personas.admin, username="owner", admin=True, reason=" ")
    assert not User.objects.get(username="owner").is_admin


def test_a_reset_password_is_shown_once_and_works(personas: Personas) -> None:
    answer = personas.client("admin").post("/admin/users/owner/reset-password", {"reason": WHY})
    password = answer.context["password"]
    assert password in answer.content.decode()
    assert User.objects.get(username="owner").check_password(password)
    assert password not in str(list(AuditEntry.objects.values()))


# --- Impersonation ---------------------------------------------------------------------------------------------------
@pytest.fixture
def looking(personas: Personas) -> Client:
    """A browser in which the admin impersonates ``developer``."""
    client = personas.client("admin")
    client.post("/admin/users/developer/look", {"reason": "They cannot find a job."})
    return client


def test_an_impersonating_admin_sees_the_account_s_pages_with_a_banner(looking: Client) -> None:
    assert looking.get("/api/v1/me").json()["username"] == "developer"
    assert "You are viewing as developer" in looking.get("/n/team/jobs").content.decode()
    assert looking.get("/admin/users").status_code == 403


@pytest.mark.parametrize("path", ["/tokens", "/n/team/quota/requests", "/api/v1/namespaces/team/jobs"])
def test_nothing_can_be_changed_meanwhile(looking: Client, path: str) -> None:
    answer = looking.post(path, {"name": "x"}, content_type="application/json")
    assert answer.status_code == 403
    assert mentions(answer.content.decode(), messages.VIEWING_READ_ONLY)


def test_impersonation_is_in_the_audit_log(looking: Client, personas: Personas) -> None:
    looking.post("/admin/looking/end")
    assert looking.get("/api/v1/me").json()["username"] == "root"
    begun, ended = AuditEntry.objects.filter(action__startswith="user.impersonate").order_by("id")
    assert (begun.actor, begun.target, begun.reason) == (personas.admin, "developer", "They cannot find a job.")
    assert (ended.actor, ended.target) == (personas.admin, "developer")


def test_a_demoted_admin_stops_impersonating(looking: Client, personas: Personas) -> None:
    User.objects.filter(pk=personas.admin.pk).update(is_superuser=False)
    assert looking.get("/n/team/jobs").status_code == 302
    assert looking.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("username", ["root2", "disabled"])
def test_admins_and_closed_accounts_cannot_be_impersonated(personas: Personas, username: str) -> None:
    make_user("root2", admin=True)
    client = personas.client("admin")
    client.post(f"/admin/users/{username}/look", {"reason": WHY})
    assert client.get("/api/v1/me").json()["username"] == "root"


# --- Audit log -------------------------------------------------------------------------------------------------------
@pytest.fixture
def trail(personas: Personas) -> Client:
    for number in range(3):
        audit_log.record("quota.set", f"team{number}", actor=personas.admin, reason="=1+1", before={"cpu": number})
    audit_log.record("sign-in", "ada", actor=None)
    return personas.client("admin")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 4),
        ({"action": "quota"}, 3),
        ({"actor": "root"}, 3),
        ({"target": "team1"}, 1),
        ({"q": "TEAM"}, 3),
        ({"since": "2001-01-01", "until": "2001-12-31"}, 0),
        ({"since": "no day"}, 4),
        ({"outcome": "refused"}, 0),
    ],
)
def test_the_audit_log_can_be_filtered(trail: Client, query: dict[str, str], count: int) -> None:
    rows = list(csv.DictReader(io.StringIO(b"".join(trail.get("/admin/audit.csv", query)).decode())))
    assert len(rows) == len(trail.get("/admin/audit", query).context["page"]["results"]) == count


def test_no_cell_of_the_file_is_a_formula(trail: Client) -> None:
    (row,) = csv.DictReader(io.StringIO(b"".join(trail.get("/admin/audit.csv", {"target": "team2"})).decode()))
    assert (row["reason"], row["before"], row["actor"]) == ("'=1+1", '{"cpu": 2}', "root")


def test_the_audit_log_is_paginated(personas: Personas) -> None:
    for number in range(60):
        audit_log.record("note", str(number), actor=None)
    client = personas.client("admin")
    first = client.get("/admin/audit", {"action": "note"}).context["page"]
    second = client.get("/admin/audit", {"action": "note", "cursor": first["next"]}).context["page"]
    targets = [entry.target for page in (first, second) for entry in page["results"]]
    assert targets == [str(number) for number in reversed(range(60))]


def test_an_invalid_cursor_is_an_error(personas: Personas) -> None:
    answer = personas.client("admin").get("/admin/audit", {"cursor": "x"})
    assert answer.status_code == 200
    assert mentions(answer.content.decode(), requests_messages.CURSOR_INVALID)


# --- Accounts for others ---------------------------------------------------------------------------------------------
NINA = {"username": "nina", "email": "nina@example.org", "by": "password", "reason": "A new colleague."}


def open_account(personas: Personas, **fields: str) -> Any:
    return personas.client("admin").post("/admin/new-user", {**NINA, **fields})


def test_the_password_of_a_new_account_is_shown_once_and_works(personas: Personas) -> None:
    password = open_account(personas).context["password"]
    body = {"username": "nina", "password": password, "name": "laptop"}
    assert Client().post("/api/v1/auth/token", body, content_type="application/json").status_code == 201
    assert password not in personas.client("admin").get("/admin/users/nina").content.decode()
    entry = AuditEntry.objects.get(action="user.create")
    assert (entry.target, entry.reason, password in str(entry.detail)) == ("nina", "A new colleague.", False)


def test_an_account_opened_by_email_gets_a_link_to_choose_a_password(personas: Personas, mailoutbox: list[Any]) -> None:
    assert open_account(personas, by="letter")["Location"] == "/admin/users/nina"
    outbox.send_due(now())
    assert mailoutbox[0].to == ["nina@example.org"]
    link = next(line for line in mailoutbox[0].body.splitlines() if "/password/" in line)
    assert Client().get(link.removeprefix("http://testserver"), follow=True).status_code == 200
    assert not User.objects.get(username="nina").has_usable_password()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"reason": " "}, messages.REASON_REQUIRED(count=LONGEST_REASON)),
        ({"username": "Owner"}, messages.ACCOUNT_NAME_LOOKS_TAKEN()),
        ({"username": "a b"}, "Enter a valid username."),
        ({"by": "letter", "email": ""}, messages.WELCOME_EMAIL_ADDRESS_MISSING()),
        ({"email": "nobody at all"}, "Enter a valid email address."),
    ],
)
def test_an_account_that_cannot_be_is_refused_in_words(personas: Personas, fields: dict[str, str], text: str) -> None:
    page = personas.client("admin").post("/admin/new-user", {**NINA, **fields}, follow=True).content.decode()
    assert text in page
    assert not User.objects.filter(username="nina").exists()


# --- How sign-in is set up -------------------------------------------------------------------------------------------
def test_the_overview_shows_what_is_configured_and_no_secret(personas: Personas, settings: Any) -> None:
    settings.SIGN_IN_PROVIDERS = {"github": "GitHub"}
    settings.SOCIAL_AUTH_GITHUB_SECRET = "a-very-secret-secret"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_HOST_PASSWORD = "mail.example.org", 587, "hush-hush"
    page = personas.client("admin").get("/admin/sign-in").content.decode()
    for text in ("REGATTA_SIGN_UP", "http://testserver/sign-in/back/github", "mail.example.org:587", "1\xa0week"):
        assert text in page
    assert "a-very-secret-secret" not in page
    assert "hush-hush" not in page


def test_a_test_email_is_sent_to_the_admin(personas: Personas, mailoutbox: list[Any]) -> None:
    User.objects.filter(pk=personas.admin.pk).update(email="root@example.org")
    personas.client("admin").post("/admin/sign-in/letter")
    assert [sent_email.to for sent_email in mailoutbox] == [["root@example.org"]]


def test_a_test_email_that_fails_is_reported_with_the_reason(personas: Personas, settings: Any) -> None:
    User.objects.filter(pk=personas.admin.pk).update(email="root@example.org")
    settings.EMAIL_BACKEND = "tests.rbac.no_such_backend.Backend"
    page = personas.client("admin").post("/admin/sign-in/letter", follow=True).content.decode()
    assert mentions(page, messages.EMAIL_NOT_SENT)


def test_an_account_that_is_closed_has_no_session_any_more(personas: Personas) -> None:
    personas.client("owner")
    assert Session.objects.filter(user=personas.owner).exists()
    account_admin.set_active(actor=personas.admin, username="owner", active=False, reason=WHY)
    assert not Session.objects.filter(user=personas.owner).exists()


@pytest.mark.parametrize("change", [account_admin.set_active, account_admin.set_admin])
def test_of_two_admins_closing_each_other_s_accounts_one_stays(personas: Personas, change: Any) -> None:
    """A concurrent request was faster: the actor is no admin any more, which this request has not read."""
    second = make_user("second", admin=True)
    User.objects.filter(pk=personas.admin.pk).update(is_superuser=False)
    field = {"active": False} if change is account_admin.set_active else {"admin": False}
    with pytest.raises(Conflict, match=pattern(messages.LAST_ADMIN)):
        change(actor=personas.admin, username="second", reason=WHY, **field)
    second.refresh_from_db()
    assert second.is_admin
