"""External sign-in, with a provider on a port of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest
from django.http import HttpResponse
from django.test import Client
from social_django.models import UserSocialAuth

from rbac import messages
from rbac.models import User
from rbac.sign_in import second_factor
from tests.factories import make_user
from tests.messages import mentions
from tests.servers.sign_in_provider import BACKENDS, Person, Provider, configure

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-one"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, settings) -> Provider:
    """Both protocols of the provider are configured."""
    configure(settings, running)
    running.person, running.refuses, running.wrong_audience = Person(), False, False
    running.asked.clear()
    running.damaged.clear()
    return running


def there_and_back(client: Client, backend: str = "oidc", wanted: str = "") -> HttpResponse:
    """Press the button here, then the one at the provider; return the answer to the callback."""
    page = client.post(f"/sign-in/with/{backend}", {"next": wanted}).content.decode()
    address = re.search(r'content="0; url=([^"]+)"', page)
    assert address, page
    other_side = httpx.get(unescape(address[1])).text
    back = re.search(r'href="http://testserver([^"]+)"', other_side)
    assert back, other_side
    return client.get(unescape(back[1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_sign_in_opens_an_account_and_shows_the_next_steps(provider: Provider, backend: str) -> None:
    client = Client()
    assert there_and_back(client, backend)["Location"] == "/welcome"
    assert client.get("/api/v1/me").json()["namespaces"] == [{"name": "grace", "role": "owner"}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_time_finds_the_same_account(provider: Provider, backend: str) -> None:
    there_and_back(Client(), backend)
    provider.person.username = "renamed"
    assert there_and_back(Client(), backend, "/tokens")["Location"] == "/tokens"
    assert [user.username for user in User.objects.all()] == ["grace"]


def test_the_tokens_of_the_provider_are_not_stored(provider: Provider) -> None:
    there_and_back(Client())
    assert "token-of-the-provider" not in str(UserSocialAuth.objects.values().get())


@pytest.mark.invariant("An e-mail address alone does not link a sign-in provider to an existing account.")
def test_an_address_alone_opens_no_account(provider: Provider) -> None:
    owner = make_user("ada")
    User.objects.filter(pk=owner.pk).update(email="Grace@example.org")
    there_and_back(Client())
    assert User.objects.get(username="grace").email == ""
    assert not UserSocialAuth.objects.filter(user=owner).exists()


def test_an_address_that_the_provider_does_not_vouch_for_is_not_taken(provider: Provider) -> None:
    provider.person.email_verified = False
    there_and_back(Client())
    assert User.objects.get().email == ""


@pytest.mark.parametrize(
    ("username", "expected"),
    [("Grace", "Grace-2"), ("a b/../c", "a-b-..-c"), ("", "grace-2"), ("///", "member"), ("x" * 300, "x" * 100)],
)
def test_a_name_is_made_fit_and_free(provider: Provider, username: str, expected: str) -> None:
    make_user("grace")
    provider.person.username = username
    there_and_back(Client())
    assert User.objects.exclude(username="grace").get().username == expected


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_the_way_back_leads_to_no_other_site(provider: Provider, wanted: str) -> None:
    there_and_back(Client())
    assert there_and_back(Client(), wanted=wanted)["Location"] == "/"


def test_a_link_does_not_begin_it(provider: Provider) -> None:
    assert Client().get("/sign-in/with/oidc").status_code == 405
    assert Client(enforce_csrf_checks=True).post("/sign-in/with/oidc").status_code == 403


def test_providers_that_are_not_configured_are_not_found(provider: Provider) -> None:
    assert Client().post("/sign-in/with/github").status_code == 404
    assert Client().get("/sign-in/back/github").status_code == 404
    page = Client().get("/sign-in").content.decode()
    assert ("Continue with Example" in page, "GitHub" in page) == (True, False)


# --- Errors are pages, without another redirect ----------------------------------------------------------------------
def test_a_refusal_at_the_provider_is_a_message(provider: Provider) -> None:
    provider.refuses = True
    answer = there_and_back(Client())
    assert answer.status_code == 403
    assert "You stopped it there." in answer.content.decode()


def test_the_way_back_in_another_browser_is_refused(provider: Provider) -> None:
    page = Client().post("/sign-in/with/oidc").content.decode()
    address = unescape(re.search(r'content="0; url=([^"]+)"', page)[1])
    back = unescape(re.search(r'href="http://testserver([^"]+)"', httpx.get(address).text)[1])
    answer = Client().get(back)
    assert answer.status_code == 403
    assert "started in another tab or browser" in answer.content.decode()
    assert not User.objects.exists()


def test_a_token_for_another_portal_opens_nothing(provider: Provider) -> None:
    provider.wrong_audience = True
    assert there_and_back(Client()).status_code in (403, 502)
    assert not User.objects.exists()


def test_a_provider_that_is_down_is_a_message(provider: Provider, settings) -> None:
    settings.SOCIAL_AUTH_OIDC_OIDC_ENDPOINT = "http://127.0.0.1:1"
    answer = Client().post("/sign-in/with/oidc")
    assert answer.status_code == 502
    assert "does not answer" in answer.content.decode()


@pytest.mark.parametrize("body", ["[]", "[1]", "7", '"text"', "<html>", ""])
@pytest.mark.parametrize(
    ("backend", "path"),
    [
        ("oidc", "/token"),
        ("oidc", "/userinfo"),
        ("baidu", "/oauth/2.0/token"),
        ("baidu", "/rest/2.0/passport/users/getInfo"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_page_and_opens_nothing(
    provider: Provider, backend: str, path: str, body: str
) -> None:
    provider.damaged[path] = body
    answer = there_and_back(Client(), backend)
    assert path in provider.asked
    assert answer.status_code in (403, 502)
    assert not User.objects.exists()


def test_the_signed_token_is_enough_without_user_information(provider: Provider) -> None:
    provider.damaged["/userinfo"] = "null"
    assert there_and_back(Client())["Location"] == "/welcome"


def test_a_closed_portal_opens_no_account(provider: Provider, settings) -> None:
    settings.SIGN_UP = "closed"
    answer = there_and_back(Client())
    assert answer.status_code == 403
    assert not User.objects.exists()


def test_an_account_that_needs_approval_waits(provider: Provider, settings) -> None:
    settings.SIGN_UP = "approval"
    assert there_and_back(Client()).status_code == 403
    assert User.objects.get().awaiting == "approval"


def test_a_closed_account_stays_closed(provider: Provider) -> None:
    there_and_back(Client())
    User.objects.update(is_active=False)
    client = Client()
    assert there_and_back(client).status_code == 403
    assert client.get("/api/v1/me").status_code == 401


def test_the_second_factor_is_asked_for_here_too(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    there_and_back(Client())
    monkeypatch.setattr(second_factor, "device_of", lambda user: object())
    client = Client()
    assert there_and_back(client)["Location"] == "/sign-in/code"
    assert client.get("/api/v1/me").status_code == 401


# --- Connecting ------------------------------------------------------------------------------------------------------
@pytest.fixture
def ada(db: None) -> Client:
    client = Client()
    client.force_login(make_user("ada", password=PASSWORD))
    return client


def test_a_signed_in_account_connects_a_provider_and_signs_in_both_ways(provider: Provider, ada: Client) -> None:
    assert there_and_back(ada)["Location"] == "/account"
    client = Client()
    there_and_back(client)
    assert client.get("/api/v1/me").json()["username"] == "ada"


def test_a_connection_is_one_account_s_alone(provider: Provider, ada: Client) -> None:
    there_and_back(Client())
    assert there_and_back(ada).status_code == 409


def test_a_connection_is_removed_unless_it_is_the_only_way_in(provider: Provider, ada: Client) -> None:
    there_and_back(ada)
    ada.post(f"/account/connections/{UserSocialAuth.objects.get().pk}/remove")
    assert not UserSocialAuth.objects.exists()
    grace = Client()
    there_and_back(grace)
    page = grace.post(f"/account/connections/{UserSocialAuth.objects.get().pk}/remove", follow=True)
    assert mentions(page.content.decode(), messages.LAST_SIGN_IN_METHOD)


def test_nobody_removes_the_connection_of_another(provider: Provider, ada: Client) -> None:
    there_and_back(Client())
    assert ada.post(f"/account/connections/{UserSocialAuth.objects.get().pk}/remove").status_code == 404
