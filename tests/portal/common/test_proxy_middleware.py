"""Effects of proxies on a request: client address, encryption, and host name."""

from __future__ import annotations

import pytest
from django.core import mail
from django.test import Client
from pytest_django import Settings

from portal.common.clock import now
from portal.common.trusted_proxies import network
from rbac.emails import outbox
from rbac.models import AuditEntry
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PROXY = "10.0.0.1"
PASSWORD = "a few words to remember"


@pytest.fixture
def _behind_a_proxy(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (network(PROXY),)


@pytest.fixture
def _encrypted(settings: Settings, _behind_a_proxy: None) -> None:
    settings.SECURE_SSL_REDIRECT = settings.HTTPS = True


def guess(peer: str, forwarded_for: str, username: str = "ada") -> int:
    """Try a wrong password from that address."""
    return (
        Client(REMOTE_ADDR=peer, headers={"x-forwarded-for": forwarded_for})
        .post("/sign-in", {"username": username, "password": "wrong"})
        .status_code
    )


def noted_address() -> str | None:
    return AuditEntry.objects.latest("pk").address


# --- Client address --------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("_behind_a_proxy")
def test_the_audit_log_records_the_caller_behind_a_trusted_proxy() -> None:
    guess(PROXY, "198.51.100.1, 203.0.113.9")
    assert noted_address() == "203.0.113.9"


@pytest.mark.invariant("Only trusted proxies state the address of the client.")
@pytest.mark.usefixtures("_behind_a_proxy")
def test_an_untrusted_proxy_cannot_claim_an_address() -> None:
    guess("192.0.2.66", "203.0.113.9")
    assert noted_address() == "192.0.2.66"


@pytest.mark.usefixtures("_behind_a_proxy")
def test_a_locked_out_caller_locks_out_no_other_behind_the_proxy(settings: Settings) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    make_user("ada", password=PASSWORD)
    assert [guess(PROXY, "203.0.113.9") for _ in range(3)][-1] == 429
    other_client = Client(REMOTE_ADDR=PROXY, headers={"x-forwarded-for": "203.0.113.10"})
    assert other_client.post("/sign-in", {"username": "ada", "password": PASSWORD}).status_code == 302


@pytest.mark.usefixtures("_behind_a_proxy")
def test_another_made_up_address_each_time_does_not_escape_the_lock(settings: Settings) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    assert [guess(PROXY, f"198.51.100.{number}, 203.0.113.9") for number in range(3)][-1] == 429


# --- Encryption ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("_encrypted")
def test_an_unencrypted_request_is_redirected_to_https() -> None:
    answer = Client(REMOTE_ADDR="192.0.2.1").get("/sign-in?next=/tokens")
    assert (answer.status_code, answer["Location"]) == (301, "https://testserver/sign-in?next=/tokens")
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.usefixtures("_encrypted")
def test_a_request_that_a_trusted_proxy_marks_as_encrypted_is_answered() -> None:
    answer = Client(REMOTE_ADDR=PROXY, headers={"x-forwarded-proto": "https"}).get("/sign-in")
    assert answer.status_code == 200


@pytest.mark.usefixtures("_encrypted")
def test_an_untrusted_proxy_cannot_claim_encryption() -> None:
    answer = Client(REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-proto": "https"}).get("/sign-in")
    assert answer.status_code == 301


@pytest.mark.usefixtures("_encrypted")
def test_after_three_redirects_a_page_names_the_setting() -> None:
    browser = Client(REMOTE_ADDR=PROXY)
    assert [browser.get("/sign-in").status_code for _ in range(3)] == [301] * 3
    answer = browser.get("/sign-in", headers={"accept-language": "zh-hans"})
    assert answer.status_code == 400
    assert "REGATTA_TRUSTED_PROXIES" in answer.content.decode()
    assert 'lang="zh-hans"' in answer.content.decode()
    assert browser.get("/sign-in").status_code == 301, "a correct setting is accepted"


@pytest.mark.usefixtures("_encrypted")
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_of_the_portal_may_be_unencrypted(path: str) -> None:
    assert Client().get(path).status_code == 200


# --- Names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_for_an_unknown_host_a_page_names_the_setting(language: str) -> None:
    answer = Client(headers={"host": "evil.example:81", "accept-language": language}).get("/sign-in")
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "REGATTA_ALLOWED_HOSTS" in page
    assert "evil.example" in page
    assert f'lang="{language}"' in page
    assert answer["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("host", ["evil.example", "<script>alert(1)</script>", "a b", "testserver@evil.example"])
def test_a_program_gets_the_same_as_a_document(host: str) -> None:
    answer = Client(headers={"host": host}).get("/api/v1/me")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_host")
    assert "REGATTA_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize("header", ["x-forwarded-host", "forwarded", "x-host"])
def test_no_other_header_names_the_portal(header: str) -> None:
    assert "http://testserver/" in email_body(headers={header: "host=evil.example"})


def email_body(**options: object) -> str:
    """Return the e-mail for a password reset that such a request causes; empty when none is sent."""
    user = make_user("ada")
    user.email = "ada@example.org"
    user.save()
    Client(**options).post("/password", {"email": user.email})
    outbox.send_due(now())
    return str(mail.outbox[-1].body) if mail.outbox else ""


def test_an_unknown_host_name_has_no_email_sent() -> None:
    assert email_body(headers={"host": "evil.example"}) == ""


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("testserver", "http://testserver/"),
        ("testserver:8000", "http://testserver:8000/"),
        # Possibly a program that somebody runs on the same machine.
        ("testserver:6666", "http://testserver:8000/"),
        ("testserver:9443", "http://testserver:9443/"),
    ],
)
def test_links_in_emails_use_only_ports_of_the_portal(host: str, address: str, settings: Settings) -> None:
    settings.PORT, settings.CSRF_TRUSTED_ORIGINS = 8000, ["https://testserver:9443"]
    assert f"{address}password/" in email_body(headers={"host": host})
