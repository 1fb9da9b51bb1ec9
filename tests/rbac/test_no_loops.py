# ruff: noqa: F811  the fixture of a provider is the one of another file
"""Every way to sign in, or to fail, ends after at most three redirects on a page of the portal."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from pytest_django import Settings

from rbac.models import Session, User
from rbac.sign_in import second_factor
from tests.factories import make_user
from tests.personas import Personas
from tests.rbac.sign_in.test_external import provider, running, there_and_back  # noqa: F401  fixtures
from tests.servers.sign_in_provider import Provider

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-one"


def nested(depth: int) -> str:
    """Return the sign-in page that leads to the sign-in page that leads to ..."""
    address = "/sign-in"
    for _ in range(depth):
        address = f"/sign-in?next={quote(address)}"
    return address


# Next pages that are not allowed, or invalid.
WANTED = (
    nested(0),
    nested(1),
    nested(6),
    "/sign-in/code",
    "/sign-out",
    "/sign-in/with/oidc",
    "/sign-in/back/oidc?code=1&state=2",
    "/nothing-here",
    "/account/password",
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "http:///evil.example",
    "javascript:alert(1)",
    "//testserver@evil.example/",
    " /sign-in",
    "http://[",
)


def arrives(answer: Any) -> bool:
    """Return whether the redirects of ``follow`` ended after at most three at a page with a text, never elsewhere."""
    steps = [address for address, _ in answer.redirect_chain]
    assert all(step.startswith("/") and not step.startswith(("//", "/\\")) for step in steps), steps
    assert len(steps) <= 3, steps
    return answer.status_code in (200, 400, 403, 404, 405) and b"<h1" in answer.content


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def test_by_password() -> None:
    make_user("ada", password=PASSWORD)
    form = {"username": "ada", "password": PASSWORD}
    answers = [Client().post("/sign-in", {**form, "next": wanted}, follow=True) for wanted in WANTED]
    assert all(arrives(answer) and answer.wsgi_request.user.is_authenticated for answer in answers)


def test_an_account_that_is_signed_in_already(personas: Personas) -> None:
    browser = personas.client("owner")
    assert all(arrives(browser.get("/sign-in", {"next": wanted}, follow=True)) for wanted in WANTED)


def test_an_account_that_owes_a_second_factor(personas: Personas, settings: Settings) -> None:
    settings.ADMIN_SECOND_FACTOR = True
    browser = personas.client("admin")
    assert all(arrives(browser.get("/sign-in", {"next": wanted}, follow=True)) for wanted in WANTED)


def test_a_caller_that_is_no_member(personas: Personas) -> None:
    paths = ("/", "/sign-in", "/sign-in/code", "/n/team/jobs", "/admin/users", "/welcome")
    browsers = [personas.client(name) for name in ("nobody", "disabled")]
    assert all(arrives(browser.get(path, follow=True)) for browser in browsers for path in paths)


def test_a_session_that_ended_before_the_form_was_sent(personas: Personas) -> None:
    personas.owner.set_password(PASSWORD)
    personas.owner.save()
    browser = personas.client("owner")
    Session.objects.all().delete()
    asked = browser.post("/n/team/invitations", {"who": "stranger"}, follow=True)
    assert arrives(asked)
    wanted = asked.context["next"]
    back = browser.post("/sign-in", {"username": "owner", "password": PASSWORD, "next": wanted}, follow=True)
    assert arrives(back)
    assert "send it again" in back.content.decode()


# --- External sign-in ------------------------------------------------------------------------------------------------
def through_other(client: Client, wanted: str) -> Any:
    answer = there_and_back(client, wanted=wanted)
    if answer.status_code != 302:
        answer.redirect_chain = []
        return answer
    return client.get(answer["Location"], follow=True)


@pytest.mark.parametrize("wanted", ["", "/sign-in", nested(6), "/sign-in/back/oidc", "https://evil.example/"])
def test_through_another_site(provider: Provider, wanted: str) -> None:
    assert arrives(through_other(Client(), wanted))


def test_through_another_site_into_a_closed_account(provider: Provider) -> None:
    there_and_back(Client())
    User.objects.update(is_active=False)
    answer = through_other(Client(), "/sign-in")
    assert arrives(answer)
    assert "An admin can tell you more" in answer.content.decode()


def test_through_another_site_into_an_account_that_waits(provider: Provider, settings: Settings) -> None:
    settings.SIGN_UP = "approval"
    for _ in range(2):
        assert arrives(through_other(Client(), "/tokens"))


def test_through_another_site_with_a_second_factor(
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there_and_back(Client())
    monkeypatch.setattr(second_factor, "device_of", lambda user: object())
    answer = through_other(Client(), "/sign-in/code")
    assert arrives(answer)
    assert 'name="code"' in answer.content.decode()


def test_back_from_another_site_after_the_session_ended(provider: Provider) -> None:
    answer = Client().get("/sign-in/back/oidc?code=1&state=2", follow=True)
    assert arrives(answer)
    assert "Start again" in answer.content.decode()
