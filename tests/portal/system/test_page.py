"""The page *System* and its API."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from jobs.models import FailedTask
from portal.common.clock import now
from portal.system import messages, overview, servers
from portal.system.heartbeats import Reporter
from portal.system.observations import Redis, Unreachable
from portal.system.rules import KINDS
from rbac.models import AuditEntry, FailedEmail, OutgoingEmail
from tests.factories import make_job, make_token, make_user
from tests.messages import mentions
from tests.personas import EVERYBODY, SHUT_OUT, Personas

pytestmark = pytest.mark.django_db
PAGES = ("/admin/system", "/admin/system/now")
API = "/api/v1/admin/system"
PASSWORD = "a-long-enough-one"


def entries(personas: Personas, name: str) -> list[dict[str, Any]]:
    """Return the entries of that name, from the API."""
    body = personas.client("admin").get(API).json()
    return [entry for entry in body["entries"] if entry["name"] == name]


# --- Who may see it --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("person", EVERYBODY)
def test_the_page_is_the_admins(personas: Personas, person: str) -> None:
    expected = {"admin": 200, "nobody": 302}.get(person, 403)
    assert personas.client(person).get("/admin/system").status_code == expected


@pytest.mark.parametrize("person", EVERYBODY)
def test_its_contents_are_the_admins_and_reload_the_page_of_a_session_that_ended(
    personas: Personas, person: str
) -> None:
    answer = personas.client(person).get("/admin/system/now")
    assert answer.status_code == {"admin": 200, "nobody": 204}.get(person, 403)
    assert answer.headers.get("HX-Refresh") == ("true" if person == "nobody" else None)


@pytest.mark.parametrize("person", [*EVERYBODY, *SHUT_OUT])
def test_the_api_is_the_admins(personas: Personas, person: str) -> None:
    expected = {"admin": 200, "nobody": 401, "disabled": 401, "revoked": 401}.get(person, 403)
    assert personas.client(person).get(API).status_code == expected


def test_a_token_that_is_bound_to_other_scopes_may_not_read_it(personas: Personas) -> None:
    token = make_token(personas.admin, scopes=["job:read"])
    assert Client(headers={"authorization": f"Bearer {token}"}).get(API).status_code == 403


@pytest.mark.parametrize("path", ["/admin/system/diagnostics", "/admin/system/e-mails/1/send"])
@pytest.mark.parametrize("person", [name for name in EVERYBODY if name != "admin"])
def test_only_admins_may_act(personas: Personas, person: str, path: str) -> None:
    assert personas.client(person).post(path).status_code == (302 if person == "nobody" else 403)
    assert not AuditEntry.objects.filter(action__in=["system.diagnostics", "mail.send-again"]).exists()


def test_an_admin_who_views_as_another_sees_what_that_account_sees(personas: Personas) -> None:
    client = personas.client("admin")
    client.post("/admin/users/developer/look", {"reason": "A question."})
    assert client.get("/admin/system").status_code == 403


# --- What it shows ---------------------------------------------------------------------------------------------------
def test_a_process_that_reports_is_ok_and_a_kind_without_one_has_failed(personas: Personas) -> None:
    Reporter("worker").write()
    assert [entry["status"] for entry in entries(personas, "worker")] == ["ok"]
    assert [entry["code"] for entry in entries(personas, "sweep")] == [messages.PROCESS_KIND_MISSING.code]


def test_a_server_of_the_settings_that_is_away_has_failed_with_what_to_do(personas: Personas, settings: Any) -> None:
    settings.REDIS_URL = "redis://:hunter22@127.0.0.1:1/0"
    (entry,) = entries(personas, "redis")
    assert entry["status"] == "failed"
    assert entry["message"] == messages.REDIS_UNREACHABLE(error="ConnectionError")
    assert "hunter22" not in str(entry)


def test_the_database_has_no_pending_migrations(personas: Personas) -> None:
    (entry,) = entries(personas, "database")
    assert (entry["status"], entry["facts"]["pending_migrations"]) == ("ok", 0)


def test_the_oldest_queued_job_is_named_with_its_reason_and_a_link(personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner, name="waits", state="QUEUED")
    page = personas.client("admin").get("/admin/system").content.decode()
    assert f"/n/team/jobs/{job.pk}" in page
    assert entries(personas, "jobs")[0]["facts"]["states"]["QUEUED"] == 1


def test_tokens_that_expire_soon_are_counted_by_owner(personas: Personas) -> None:
    for days in (2, 3, 30):
        make_token(personas.owner, expires=now() + timedelta(days=days))
    (entry,) = entries(personas, "tokens")
    assert [(owner["owner"], owner["count"]) for owner in entry["facts"]["owners"]] == [("owner", 2)]


def test_a_failing_task_is_shown_without_secrets(personas: Personas) -> None:
    text = "redis://:hunter22@cache refused"
    FailedTask.objects.create(name="e-mail", since=now(), last=now(), failures=3, error=text)
    page = personas.client("admin").get("/admin/system").content.decode()
    assert "cache refused" in page
    assert "hunter22" not in page


def test_the_page_is_chinese_for_a_chinese_reader(personas: Personas) -> None:
    page = personas.client("admin").get("/admin/system", headers={"accept-language": "zh-hans"}).content.decode()
    assert "下载诊断信息" in page
    assert not mentions(page, messages.PROCESS_KIND_MISSING)


# --- Checks ----------------------------------------------------------------------------------------------------------
def test_a_check_that_hangs_is_late_and_not_started_again(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    begun, release = [], threading.Event()

    def hangs() -> Redis:
        begun.append(1)
        release.wait(30)
        return Redis("7")

    monkeypatch.setattr(servers, "REMOTE", {"redis": hangs})
    monkeypatch.setattr(overview, "DEADLINE_SECONDS", 0.05)
    late = messages.NOT_FINISHED(seconds="0.05")
    for _ in range(2):
        (entry,) = [entry for entry in overview._observe().entries if entry.name == "redis"]
        assert entry.message == messages.REDIS_UNREACHABLE(error=late)
    assert begun == [1]
    release.set()


def test_the_overview_is_observed_once_in_a_few_seconds(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(servers, "REMOTE", {"redis": lambda: seen.append(1) or Unreachable("redis", "OSError")})
    for _ in range(3):
        overview.overview()
    assert seen == [1]


# --- The badge -------------------------------------------------------------------------------------------------------
def test_the_menu_shows_how_many_entries_need_attention(personas: Personas) -> None:
    for kind in KINDS[1:]:
        Reporter(kind).write()
    assert overview.badge() >= 1
    page = personas.client("admin").get("/admin/users").content.decode()
    assert f'<span class="pill warn">{overview.badge()}<' in page


def test_the_badge_is_computed_once_in_half_a_minute(personas: Personas) -> None:
    overview.badge()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        overview.badge()
    assert len(queries) == 0


def test_a_page_of_a_member_does_not_compute_the_badge(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise AssertionError("computed")

    monkeypatch.setattr("portal.context_processors.badge", fails)
    assert personas.client("owner").get("/n/team/jobs").status_code == 200


@pytest.mark.parametrize(("sign_up", "warns"), [("open", True), ("approval", True), ("closed", False)])
def test_an_open_sign_up_without_a_mail_server_needs_attention(
    personas: Personas, settings: Any, sign_up: str, warns: bool
) -> None:
    settings.SIGN_UP, settings.EMAIL_BACKEND = sign_up, "django.core.mail.backends.console.EmailBackend"
    (entry,) = entries(personas, "e-mail")
    assert (entry["status"] == "warning") == warns


# --- Failed e-mails --------------------------------------------------------------------------------------------------
def failed_email(**fields: Any) -> FailedEmail:
    at = now()
    email = OutgoingEmail.objects.create(
        template="reset",
        to="ada@example.org",
        language="en",
        origin="http://x",
        created=at,
        due=at + timedelta(hours=1),
    )
    values = {"template": "reset", "domain": "example.org", "first": at, "last": at, "tries": 1, "error": "OSError"}
    return FailedEmail.objects.create(**{**values, "email": email, "next_try": email.due, **fields})


def test_failed_emails_are_listed_by_domain_and_error(personas: Personas) -> None:
    failed_email()
    (row,) = personas.client("admin").get(API).json()["failed_emails"]
    assert (row["kind"], row["domain"], row["error"], row["state"]) == ("reset", "example.org", "OSError", "waiting")


def test_a_waiting_email_is_sent_again_on_request(personas: Personas) -> None:
    failure = failed_email()
    personas.client("admin").post(f"/admin/system/e-mails/{failure.pk}/send")
    assert OutgoingEmail.objects.get().due <= now()
    assert AuditEntry.objects.filter(action="mail.send-again", actor=personas.admin).count() == 1


def test_an_email_that_was_given_up_has_no_button(personas: Personas) -> None:
    failure = failed_email(email=None, next_try=None)
    client = personas.client("admin")
    assert f"again-{failure.pk}" not in client.get("/admin/system").content.decode()
    page = client.post(f"/admin/system/e-mails/{failure.pk}/send", follow=True).content.decode()
    assert mentions(page, messages.EMAIL_NOT_WAITING)


# --- In the browser --------------------------------------------------------------------------------------------------
@pytest.mark.invariant("No page requests anything that its content security policy refuses.")
@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_page_renews_itself(page: Page, live_server: LiveServer) -> None:
    make_user("ada", password=PASSWORD, admin=True)
    page.clock.install()
    page.goto(f"{live_server.url}/sign-in?next=/admin/system")
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("[data-entry=worker]")).to_have_attribute("data-status", "failed")
    Reporter("worker").write()
    overview.forget()
    page.clock.fast_forward(11_000)
    expect(page.locator("[data-entry=worker]")).to_have_attribute("data-status", "ok")
    expect(page.locator("#system")).to_have_count(1)
