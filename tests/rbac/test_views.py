"""Sign-in, sign-out and tokens on the pages."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from rbac import messages
from rbac.models import ApiToken
from tests.factories import make_token, make_user
from tests.messages import mentions
from tests.personas import Personas

PASSWORD = "a-long-enough-one"


@pytest.fixture
def ada(db: None) -> None:
    make_user("ada", password=PASSWORD)


def sign_in(client: Client, **fields: str) -> object:
    return client.post("/sign-in", {"username": "ada", "password": PASSWORD, **fields})


def test_signing_in_leads_home_and_makes_the_personal_namespace(ada: None) -> None:
    client = Client()
    assert sign_in(client)["Location"] == "/"
    assert client.get("/")["Location"] == "/n/ada/jobs"
    assert client.get("/n/ada/jobs").status_code == 200


def test_a_wrong_password_is_refused_in_words_and_keeps_the_name(ada: None) -> None:
    answer = sign_in(Client(), password="wrong")
    assert answer.status_code == 401
    assert messages.CREDENTIALS_WRONG() in answer.content.decode()
    assert 'value="ada"' in answer.content.decode()
    assert "wrong" not in re.findall(r'<input[^>]*type="password"[^>]*>', answer.content.decode())[0]


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"]
)
def test_sign_in_never_leads_to_another_site(ada: None, wanted: str) -> None:
    assert sign_in(Client(), next=wanted)["Location"] == "/"


def test_sign_in_leads_to_the_page_that_was_wanted(ada: None) -> None:
    client = Client()
    asked = client.get("/n/ada/jobs?owner=all")
    assert asked["Location"] == "/sign-in?next=/n/ada/jobs%3Fowner%3Dall"
    assert "/n/ada/jobs?owner=all" in client.get(asked["Location"]).content.decode()
    assert sign_in(client, next="/n/ada/jobs?owner=all")["Location"] == "/n/ada/jobs?owner=all"


def test_a_signed_in_account_is_not_asked_again(personas: Personas) -> None:
    assert personas.client("owner").get("/sign-in")["Location"] == "/"


def test_sign_in_without_a_csrf_token_is_refused_with_a_way_on(ada: None) -> None:
    answer = sign_in(Client(enforce_csrf_checks=True))
    assert answer.status_code == 403
    assert 'href="/sign-in"' in answer.content.decode()


def test_signing_out_ends_the_session_on_the_server(personas: Personas) -> None:
    client = personas.client("owner")
    kept = client.cookies["regatta-session"].value
    assert client.post("/sign-out")["Location"] == "/sign-in"
    client.cookies["regatta-session"] = kept
    assert client.get("/tokens").status_code == 302


def test_a_link_cannot_sign_anybody_out(personas: Personas) -> None:
    client = personas.client("owner")
    assert client.get("/sign-out").status_code == 405
    assert client.get("/tokens").status_code == 200


def test_a_new_token_is_shown_once_and_works(personas: Personas) -> None:
    client = personas.client("viewer")
    secret = re.search(r"rgt_[\w-]+", client.post("/tokens", {"name": "laptop"}).content.decode())
    assert secret
    page = client.get("/tokens").content.decode()
    assert "laptop" in page
    assert secret[0] not in page
    me = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret[0]}"})
    assert me.json()["username"] == "viewer"


@pytest.mark.parametrize("name", ["", "   ", "x" * 101])
def test_a_token_needs_a_name_of_fitting_length(personas: Personas, name: str) -> None:
    answer = personas.client("viewer").post("/tokens", {"name": name})
    assert answer.status_code == 422
    assert mentions(answer.content.decode(), messages.TOKEN_NAME_LENGTH)


def test_nobody_sees_or_revokes_the_tokens_of_others(personas: Personas) -> None:
    make_token(personas.owner, name="of the owner")
    token = ApiToken.objects.get()
    client = personas.client("stranger")
    assert "of the owner" not in client.get("/tokens").content.decode()
    assert client.post(f"/tokens/{token.pk}/revoke").status_code == 404
    token.refresh_from_db()
    assert token.revoked is None


def test_ones_own_token_can_be_revoked(personas: Personas) -> None:
    secret = make_token(personas.owner)
    token = ApiToken.objects.get()
    assert personas.client("owner").post(f"/tokens/{token.pk}/revoke").status_code == 302
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


@pytest.mark.parametrize("path", ["/", "/tokens", "/n/team/jobs"])
def test_without_an_account_every_page_asks_to_sign_in(personas: Personas, path: str) -> None:
    assert personas.client("nobody").get(path)["Location"].startswith("/sign-in?next=/")


def test_the_language_can_be_chosen_and_stays(personas: Personas) -> None:
    client = personas.client("owner")
    answer = client.post("/language", {"language": "zh-hans", "next": "https://evil.example/"})
    assert answer["Location"] == "/"
    page = client.get("/n/team/jobs").content.decode()
    assert '<html lang="zh-hans"' in page
    assert "新建任务" in page
    assert json.dumps("正在重新连接").strip('"') in client.get("/texts.js").content.decode()
